// SPDX-License-Identifier: Apache-2.0
//
// The data plane's slots and counters of one process set, laid out over memory that somebody else maps (a NodeLink's
// segment).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/columns.hpp"
#include "transport/intra_node.hpp"

namespace kolo::shm {

/// In the first page of a rank's column lie its three counters, a cache line each, the first line also with the bits of
/// `set_placed`; then come the slots and their places. All of it is written by that rank first,
/// so that the system places it next to it.
class SlotRing final : public transport::IntraNode {
 public:
  /// When a rank's part of the memory is made available by the system.
  enum class Pages : std::uint8_t { at_once, when_used };

  /// `columns`: of the set's ranks of this node, page aligned, of `column_bytes` each; they outlive the ring. Where
  /// they were used before, nobody uses them any more, and no rank looks at a peer's before that one has made its ring.
  /// `slot_bytes` is a multiple of 64, `slots` at most 64. Every rank gives the same, but its own `local_rank`.
  SlotRing(base::Columns columns, int local_rank, std::size_t slot_bytes, std::uint64_t slots,
           Pages pages = Pages::at_once);
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t column_bytes(std::size_t slot_bytes, std::uint64_t slots) noexcept;

  [[nodiscard]] int local_rank() const noexcept override { return local_rank_; }
  [[nodiscard]] int local_size() const noexcept override { return columns_.size(); }
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

  base::Columns columns_;
  std::size_t slot_bytes_;
  std::uint64_t slots_;
  int local_rank_;

  /// What all_reached saw: while the slowest has not moved, nobody else is looked at.
  struct Seen {
    std::uint64_t least = 0;
    int slowest = 0;
  };
  Seen seen_[transport::kStageCount];
};

}  // namespace kolo::shm
