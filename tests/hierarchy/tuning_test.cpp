// SPDX-License-Identifier: Apache-2.0
#include "hierarchy/tuning.hpp"

#include <gtest/gtest.h>

namespace kolo::hierarchy {
namespace {

constexpr std::size_t kKi = 1024;

TEST(Tuning, SlotsFollowTheCacheAndTheRanks) {
  EXPECT_EQ(choose_slot_bytes(1024 * kKi, 2), 256 * kKi);
  EXPECT_EQ(choose_slot_bytes(1024 * kKi, 4), 128 * kKi);
  EXPECT_EQ(choose_slot_bytes(512 * kKi, 8), 64 * kKi);
}

TEST(Tuning, SlotsStayWithinTheirBounds) {
  EXPECT_EQ(choose_slot_bytes(0, 2), 32 * kKi);
  EXPECT_EQ(choose_slot_bytes(64 * 1024 * kKi, 2), 256 * kKi);
  EXPECT_EQ(choose_slot_bytes(64 * 1024 * kKi, 3), 128 * kKi);
  EXPECT_EQ(choose_slot_bytes(1000 * kKi + 13, 2) % (4 * kKi), 0U);
}

}  // namespace
}  // namespace kolo::hierarchy
