// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/slot_ring.hpp"

#include <utility>

#include <sys/mman.h>

#include "base/check.hpp"
#include "base/machine.hpp"

namespace kolo::shm {

namespace {

constexpr std::size_t kLine = 64;

/// Where a column's slots begin.
constexpr std::size_t kSlotsAt = base::kPageBytes;
constexpr std::size_t kTurns = kSlotsAt / kLine / transport::kStageCount;

/// The system places a page in the memory of the core that writes it first.
void touch(std::byte* memory, std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return;  // all at once; since Linux 5.14
#endif
  for (std::size_t at = 0; at < bytes; at += base::kPageBytes) memory[at] = std::byte{0};
}

}  // namespace

std::size_t SlotRing::column_bytes(std::size_t slot_bytes, std::uint64_t slots) noexcept {
  return kSlotsAt +
         base::round_up((slot_bytes + transport::kPlaces * sizeof(transport::Place)) * slots, base::kPageBytes);
}

SlotRing::SlotRing(base::Columns columns, int local_rank, std::size_t slot_bytes, std::uint64_t slots, Pages pages)
    : columns_(std::move(columns)), slot_bytes_(slot_bytes), slots_(slots), local_rank_(local_rank) {
  KOLO_CHECK(local_rank >= 0 && local_rank < local_size()) << "local rank " << local_rank << " of " << local_size();
  KOLO_CHECK(slot_bytes > 0 && slot_bytes % kLine == 0 && slots > 0 && slots <= 64)
      << slots << " slots of " << slot_bytes << " bytes";
  KOLO_CHECK(reinterpret_cast<std::uintptr_t>(columns_[local_rank]) % kLine == 0);
  if (pages == Pages::at_once) touch(columns_[local_rank], column_bytes(slot_bytes, slots));
  for (int stage = 0; stage < transport::kStageCount; ++stage) publish(static_cast<transport::Stage>(stage), 0);
  placed(local_rank).store(0, std::memory_order_relaxed);
}

std::byte* SlotRing::slot(int local_rank, std::uint64_t chunk) const noexcept {
  return columns_[local_rank] + kSlotsAt + chunk % slots_ * slot_bytes_;
}

SlotRing::Counter& SlotRing::counter(transport::Stage stage, int local_rank) const noexcept {
  // Ranks use different offsets in the page: lines at the same offset would evict each other from the cache, and all
  // ranks' counters are read together.
  const std::size_t turn = static_cast<std::size_t>(local_rank) % kTurns;
  const std::size_t line = turn * transport::kStageCount + static_cast<std::size_t>(stage);
  return *reinterpret_cast<Counter*>(columns_[local_rank] + line * kLine);
}

transport::Place* SlotRing::places(int local_rank, std::uint64_t chunk) const noexcept {
  std::byte* first = columns_[local_rank] + kSlotsAt + slots_ * slot_bytes_;
  return reinterpret_cast<transport::Place*>(first) + chunk % slots_ * transport::kPlaces;
}

/// In the cache line of the counter that is read anyway.
SlotRing::Counter& SlotRing::placed(int local_rank) const noexcept {
  return (&counter(transport::Stage::filled, local_rank))[1];
}

/// Peers may read the bits of other chunks meanwhile; those bits do not change from fill to take.
void SlotRing::set_placed(std::uint64_t chunk, bool is) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << chunk % slots_;
  Counter& bits = placed(local_rank_);
  const std::uint64_t before = bits.load(std::memory_order_relaxed);
  if (((before & bit) != 0) != is) bits.store(before ^ bit, std::memory_order_relaxed);
}

bool SlotRing::is_placed(int local_rank, std::uint64_t chunk) const noexcept {
  return (placed(local_rank).load(std::memory_order_relaxed) >> chunk % slots_ & 1) != 0;
}

void SlotRing::publish(transport::Stage stage, std::uint64_t chunks) noexcept {
  counter(stage, local_rank_).store(chunks, std::memory_order_release);
}

std::uint64_t SlotRing::reached(transport::Stage stage, int local_rank) const noexcept {
  return counter(stage, local_rank).load(std::memory_order_acquire);
}

std::uint64_t SlotRing::all_reached(transport::Stage stage) noexcept {
  Seen& seen = seen_[static_cast<std::size_t>(stage)];
  if (reached(stage, seen.slowest) == seen.least) return seen.least;
  seen.slowest = 0;
  seen.least = reached(stage, 0);
  for (int rank = 1; rank < local_size(); ++rank) {
    const std::uint64_t chunks = reached(stage, rank);
    if (chunks < seen.least) {
      seen.least = chunks;
      seen.slowest = rank;
    }
  }
  return seen.least;
}

}  // namespace kolo::shm
