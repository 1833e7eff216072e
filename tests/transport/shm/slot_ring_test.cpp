// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/slot_ring.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "tests/support/sanitized.hpp"
#include "transport/shm/segment.hpp"

namespace kolo::shm {
namespace {

using transport::Stage;

TEST(SlotRing, EveryRankHasSlotsOfItsOwnInATurningRing) {
  const std::size_t bytes = SlotRing::column_bytes(192, 4);
  EXPECT_EQ(bytes, 2 * 4096u);  // a page for the counters, and one for slots and places
  const Segment memory = Segment::anonymous(3 * bytes);
  SlotRing ring(base::Columns::in_a_row(memory.data(), bytes, 3), 1, 192, 4);
  for (int rank = 0; rank < 3; ++rank) {
    for (std::uint64_t chunk = 0; chunk < 9; ++chunk) {
      const std::size_t offset = bytes * static_cast<std::size_t>(rank) + 4096 + 192 * (chunk % 4);
      EXPECT_EQ(ring.slot(rank, chunk), memory.data() + offset);
    }
  }
}

TEST(SlotRing, AllReachedIsTheSlowestOfAll) {
  const std::size_t bytes = SlotRing::column_bytes(64, 2);
  const Segment memory = Segment::anonymous(3 * bytes);
  const auto columns = base::Columns::in_a_row(memory.data(), bytes, 3);
  SlotRing a(columns, 0, 64, 2), b(columns, 1, 64, 2), c(columns, 2, 64, 2);
  EXPECT_EQ(a.all_reached(Stage::filled), 0u);
  a.publish(Stage::filled, 3);
  b.publish(Stage::filled, 2);
  EXPECT_EQ(a.all_reached(Stage::filled), 0u);
  c.publish(Stage::filled, 5);
  EXPECT_EQ(a.all_reached(Stage::filled), 2u);
  EXPECT_EQ(b.reached(Stage::filled, 2), 5u);
  b.publish(Stage::filled, 9);
  EXPECT_EQ(a.all_reached(Stage::filled), 3u);
  EXPECT_EQ(a.all_reached(Stage::reduced), 0u);
  EXPECT_EQ(c.all_reached(Stage::taken), 0u);
}

TEST(SlotRing, WhatWasWrittenBeforeAPublicationIsSeenAfterIt) {
  constexpr std::uint64_t kChunks = kolo::testing::unless_sanitized(20000, 4000);
  const std::size_t bytes = SlotRing::column_bytes(64, 2);
  const Segment memory = Segment::anonymous(2 * bytes);
  const auto columns = base::Columns::in_a_row(memory.data(), bytes, 2);
  std::barrier made(2);
  const auto body = [&](int rank) {
    SlotRing ring(columns, rank, 64, 2);
    made.arrive_and_wait();
    for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk) {
      while (chunk >= 2 && ring.all_reached(Stage::taken) <= chunk - 2) std::this_thread::yield();
      std::memcpy(ring.slot(rank, chunk), &chunk, sizeof chunk);
      ring.publish(Stage::filled, chunk + 1);
      while (ring.all_reached(Stage::filled) <= chunk) std::this_thread::yield();
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, ring.slot(1 - rank, chunk), sizeof theirs);
      ASSERT_EQ(theirs, chunk);
      ring.publish(Stage::taken, chunk + 1);
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
}

}  // namespace
}  // namespace kolo::shm
