// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/cpu_distance.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/columns.hpp"
#include "transport/shm/segment.hpp"
#include "transport/shm/slot_ring.hpp"

namespace kolo::data::cpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(CpuDistance, IsJudgedByWhatWritingTook) {
  EXPECT_EQ(judge_cpu_distance(nanoseconds(17'000), nanoseconds(3'000)), CpuDistance::far);
  EXPECT_EQ(judge_cpu_distance(nanoseconds(4'100), nanoseconds(3'000)), CpuDistance::near);
  EXPECT_EQ(judge_cpu_distance(nanoseconds(4'100), nanoseconds(5'500)), CpuDistance::near);
}

/// What the ranks of a node find.
std::vector<CpuDistance> measure(int ranks, std::size_t slot_bytes, milliseconds patience) {
  constexpr std::uint64_t kSlots = 2;
  const std::size_t column = shm::SlotRing::column_bytes(slot_bytes, kSlots);
  const shm::Segment memory = shm::Segment::anonymous(column * static_cast<std::size_t>(ranks));
  std::vector<CpuDistance> found(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const shm::SlotRing slots(base::Columns::in_a_row(memory.data(), column, ranks), rank, slot_bytes, kSlots);
      found[static_cast<std::size_t>(rank)] = measure_cpu_distance(slots, patience);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(CpuDistance, IsMeasuredByPairs) {
  const std::vector<CpuDistance> found = measure(3, 128 << 10, milliseconds(60'000));
  EXPECT_NE(found[0], CpuDistance::unknown);
  EXPECT_NE(found[1], CpuDistance::unknown);
  EXPECT_EQ(found[2], CpuDistance::unknown) << "it has no peer";
}

TEST(CpuDistance, SmallSlotsSayNothing) {
  for (const CpuDistance one : measure(2, 4096, milliseconds(60'000))) EXPECT_EQ(one, CpuDistance::unknown);
}

TEST(CpuDistance, APeerThatDoesNotComeIsNotWaitedFor) {
  const std::size_t column = shm::SlotRing::column_bytes(64 << 10, 2);
  const shm::Segment memory = shm::Segment::anonymous(column * 2);
  const shm::SlotRing slots(base::Columns::in_a_row(memory.data(), column, 2), 0, 64 << 10, 2);
  EXPECT_EQ(measure_cpu_distance(slots, milliseconds(5)), CpuDistance::unknown);
}

}  // namespace
}  // namespace kolo::data::cpu
