// SPDX-License-Identifier: Apache-2.0
#include "base/buckets.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace kolo::base {
namespace {

TEST(Buckets, AValueIsInTheFirstBucketWhoseBoundIsNotBelowIt) {
  const std::vector<std::uint64_t> bounds = DurationBuckets<>().histogram().bounds;
  ASSERT_EQ(bounds.front(), 1000U);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_EQ(bounds[i], std::uint64_t{1000} << (2 * i));
    EXPECT_EQ(DurationBuckets<>::index_of(bounds[i]), i);
    EXPECT_EQ(DurationBuckets<>::index_of(bounds[i] + 1), i + 1);
  }
  EXPECT_EQ(DurationBuckets<>::index_of(0), 0U);
  EXPECT_EQ(DurationBuckets<>::index_of(~std::uint64_t{0}), bounds.size());
  for (std::uint64_t value = 0; value < 9; ++value)
    EXPECT_EQ(CountBuckets::index_of(value), (std::vector<std::size_t>{0, 0, 1, 2, 2, 3, 3, 3, 3}[value]));
}

TEST(Buckets, CountAndSumAreOfAllValues) {
  ByteBuckets buckets;
  for (const std::uint64_t value : {0ULL, 1024ULL, 1025ULL, 1ULL << 40}) buckets.add(value);
  const Histogram found = buckets.histogram();
  EXPECT_EQ(found.count, 4U);
  EXPECT_EQ(found.sum, 2049U + (1ULL << 40));
  EXPECT_EQ(found.counts.front(), 2U);
  EXPECT_EQ(found.counts[1], 1U);
  EXPECT_EQ(found.counts.back(), 1U);
  EXPECT_EQ(std::accumulate(found.counts.begin(), found.counts.end(), std::uint64_t{0}), 4U);
}

}  // namespace
}  // namespace kolo::base
