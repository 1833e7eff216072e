// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "api/metrics_file.hpp"

namespace kolo::api {
namespace {

TEST(MetricsPath, EachRankHasItsOwn) {
  EXPECT_EQ(metrics_path("/var/kolo.prom", 0), "/var/kolo.prom");
  EXPECT_EQ(metrics_path("/var/kolo.prom", 12), "/var/kolo.12.prom");
  EXPECT_EQ(metrics_path("kolo", 1), "kolo.1");
  EXPECT_EQ(metrics_path("a.b/kolo.x.prom", 1), "a.b/kolo.x.1.prom");
  EXPECT_EQ(metrics_path("%r/kolo-%r.prom", 3), "3/kolo-3.prom");
  EXPECT_EQ(metrics_path("kolo-%r.prom", 0), "kolo-0.prom");
}

}  // namespace
}  // namespace kolo::api
