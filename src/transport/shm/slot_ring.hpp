// SPDX-License-Identifier: Apache-2.0
//
// The data plane's slots and counters, laid out over memory that somebody else maps (a NodeLink's segment).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/intra_node.hpp"

namespace kolo::shm {

/// In memory: each rank's three counters, a cache line each, the first line also with the bits of `set_placed`; then,
/// for each rank, beginning on a page, so that its pages are first touched, and placed, by itself, the slots and their
/// places.
class SlotRing final : public transport::IntraNode {
 public:
  /// `memory` is zeroed, page aligned, at least `required_bytes` long (`bytes` is checked against it), and outlives the
  /// ring. `slot_bytes` is a multiple of 64, `slots` at most 64. Every rank gives the same numbers, but its own
  /// `local_rank`.
  SlotRing(std::byte* memory, std::size_t bytes, int local_rank, int local_size, std::size_t slot_bytes,
           std::uint64_t slots);
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t required_bytes(int local_size, std::size_t slot_bytes, std::uint64_t slots) noexcept;

  [[nodiscard]] int local_rank() const noexcept override { return local_rank_; }
  [[nodiscard]] int local_size() const noexcept override { return local_size_; }
  [[nodiscard]] std::size_t slot_bytes() const noexcept override { return slot_bytes_; }
  [[nodiscard]] std::uint64_t slots() const noexcept override { return slots_; }
  [[nodiscard]] std::byte* slot(int local_rank, std::uint64_t chunk) const noexcept override;
  [[nodiscard]] transport::Place* places(int local_rank, std::uint64_t chunk) const noexcept override;
  void set_placed(std::uint64_t chunk, bool placed) noexcept override;
  [[nodiscard]] bool is_placed(int local_rank, std::uint64_t chunk) const noexcept override;
  void publish(transport::Stage stage, std::uint64_t chunks) noexcept override;
  [[nodiscard]] std::uint64_t reached(transport::Stage stage, int local_rank) const noexcept override;
  [[nodiscard]] std::uint64_t all_reached(transport::Stage stage) noexcept override;
  [[nodiscard]] const char* name() const noexcept override { return "shared memory"; }

 private:
  using Counter = std::atomic<std::uint64_t>;
  static_assert(Counter::is_always_lock_free);

  [[nodiscard]] Counter& counter(transport::Stage stage, int local_rank) const noexcept;
  [[nodiscard]] Counter& placed(int local_rank) const noexcept;

  std::byte* counters_;
  std::byte* slots_memory_;
  std::size_t ring_bytes_;  // from one rank's slots to the next's
  std::size_t slot_bytes_;
  std::uint64_t slots_;
  int local_rank_;
  int local_size_;

  /// What all_reached saw: while the slowest has not moved, nobody else is looked at.
  struct Seen {
    std::uint64_t least = 0;
    int slowest = 0;
  };
  Seen seen_[transport::kStageCount];
};

}  // namespace kolo::shm
