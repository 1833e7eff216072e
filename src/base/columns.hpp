// SPDX-License-Identifier: Apache-2.0
//
// Where ranks of one node have their parts of its shared memory.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace kolo::base {

/// A stretch of the node's shared memory for each of some of its ranks, all alike: by the rank's place among these.
class Columns {
 public:
  explicit Columns(std::vector<std::byte*> begins) noexcept : begins_(std::move(begins)) {}
  /// Those of `ranks` ranks, of `bytes` each, one behind another.
  static Columns in_a_row(std::byte* memory, std::size_t bytes, int ranks) {
    std::vector<std::byte*> begins(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < begins.size(); ++rank) begins[rank] = memory + rank * bytes;
    return Columns(std::move(begins));
  }
  /// What of each begins at `offset`.
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
