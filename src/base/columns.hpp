// SPDX-License-Identifier: Apache-2.0
//
// The parts of a node's shared memory that belong to single ranks.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace kolo::base {

/// One block of shared memory for each of some ranks of the node, all of the same layout, by the rank's place among
/// these.
class Columns {
 public:
  explicit Columns(std::vector<std::byte*> begins) noexcept : begins_(std::move(begins)) {}
  /// Columns of `ranks` ranks, of `bytes` each, one after another.
  static Columns in_a_row(std::byte* memory, std::size_t bytes, int ranks) {
    std::vector<std::byte*> begins(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < begins.size(); ++rank) begins[rank] = memory + rank * bytes;
    return Columns(std::move(begins));
  }
  /// The part of each column from `offset` on.
  [[nodiscard]] Columns from(std::size_t offset) const {
    Columns rest = *this;
    for (std::byte*& begin : rest.begins_) begin += offset;
    return rest;
  }

  [[nodiscard]] std::byte* operator[](int place) const noexcept { return begins_[static_cast<std::size_t>(place)]; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(begins_.size()); }

 private:
  std::vector<std::byte*> begins_;
};

}  // namespace kolo::base
