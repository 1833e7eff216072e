// SPDX-License-Identifier: Apache-2.0
//
// The data plane's slots and counters of one process set, laid out over memory that is mapped elsewhere (a NodeLink's
// segment).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/columns.hpp"
#include "transport/intra_node.hpp"

namespace kolo::shm {

/// The first page of a rank's column has its three counters, in a cache line each; the first line also has the bits of
/// `set_placed`. Then come the slots and their places. The rank writes all of it first, so that the system places it in
/// memory near the rank.
class SlotRing final : public transport::IntraNode {
 public:
  /// When the system allocates a rank's part of the memory.
  enum class Pages : std::uint8_t { at_once, when_used };

  /// `columns`: those of the set's ranks on this node, page aligned, `column_bytes` each; they must outlive the ring.
  /// If they were used before, no rank may use them any more, and no rank may read a peer's column before the peer has
  /// made its ring. `slot_bytes` is a multiple of 64, `slots` at most 64. Every rank gives the same values, except
  /// `local_rank`.
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

  /// The last result of all_reached: while the slowest rank has not moved, no other counter is read.
  struct Seen {
    std::uint64_t least = 0;
    int slowest = 0;
  };
  Seen seen_[transport::kStageCount];
};

}  // namespace kolo::shm
