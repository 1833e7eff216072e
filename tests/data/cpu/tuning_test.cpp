// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/tuning.hpp"

#include <gtest/gtest.h>

namespace kolo::data::cpu {
namespace {

constexpr std::size_t kKi = 1024;
constexpr std::size_t kMi = 1024 * kKi;

TEST(Tuning, SlotsFollowTheCacheAndTheRanks) {
  EXPECT_EQ(choose_slot_bytes(1024 * kKi, 2, true), 256 * kKi);
  EXPECT_EQ(choose_slot_bytes(1024 * kKi, 4, true), 128 * kKi);
  EXPECT_EQ(choose_slot_bytes(512 * kKi, 8, true), 64 * kKi);
  EXPECT_EQ(choose_slot_bytes(512 * kKi, 8, false), 64 * kKi);
}

TEST(Tuning, SlotsStayWithinTheirBounds) {
  EXPECT_EQ(choose_slot_bytes(0, 2, true), 32 * kKi);
  EXPECT_EQ(choose_slot_bytes(64 * 1024 * kKi, 2, true), 256 * kKi);
  EXPECT_EQ(choose_slot_bytes(64 * 1024 * kKi, 3, true), 128 * kKi);
  EXPECT_EQ(choose_slot_bytes(1000 * kKi + 13, 2, true) % (4 * kKi), 0U);
}

TEST(Tuning, BetweenHostsSlotsAreManyAndSmall) {
  for (int local_ranks = 1; local_ranks <= 64; local_ranks *= 2) {
    EXPECT_EQ(choose_slot_bytes(4096 * kKi, local_ranks, false), 128 * kKi);
  }
  EXPECT_GT(choose_slots(false), choose_slots(true));
  EXPECT_LE(static_cast<std::size_t>(choose_slots(false)) * kMostSlotBytesBetweenHosts, 2048 * kKi);
}

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
}  // namespace kolo::data::cpu
