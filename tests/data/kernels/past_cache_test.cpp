// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/past_cache.hpp"

#include <gtest/gtest.h>

namespace kolo::kernels {
namespace {

constexpr std::size_t kMi = std::size_t{1} << 20;

TEST(CopiesPastTheCache, ShareASmallCacheAndAnEighthOfALargeOne) {
  EXPECT_EQ(copied_past_cache_bytes(kMi, 32 * kMi, 2), 16 * kMi);
  EXPECT_EQ(copied_past_cache_bytes(kMi, 32 * kMi, 4), 8 * kMi);
  EXPECT_EQ(copied_past_cache_bytes(kMi, 16 * kMi, 1), 16 * kMi);
  EXPECT_EQ(copied_past_cache_bytes(kMi, 128 * kMi, 2), 16 * kMi);
  EXPECT_EQ(copied_past_cache_bytes(kMi, 480 * kMi, 2), 30 * kMi);
}

TEST(CopiesPastTheCache, AreNoShorterThanSumsThatAre) {
  EXPECT_EQ(copied_past_cache_bytes(5 * kMi, 32 * kMi, 8), 5 * kMi);
  EXPECT_EQ(copied_past_cache_bytes(5 * kMi, 0, 2), 5 * kMi) << "a machine that does not tell its caches";
}

}  // namespace
}  // namespace kolo::kernels
