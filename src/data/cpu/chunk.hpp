// SPDX-License-Identifier: Apache-2.0
//
// The nouns of the CPU backend: chunks and parts, the walk through a run's pieces, and what carries messages between
// nodes for chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.hpp"
#include "data/backend.hpp"

namespace kolo::data::cpu {

class Collective;

/// A position in the concatenation of some pieces, moving forward.
class PieceCursor {
 public:
  PieceCursor() noexcept = default;
  PieceCursor(const data::Piece* pieces, std::size_t count) noexcept : piece_(pieces), end_(pieces + count) {}

  /// Calls visit(piece, first element within it, elements) for the stretches that make up the next `elements`.
  template <class Visit>
  void advance(std::int64_t elements, Visit&& visit) {
    while (elements > 0) {
      KOLO_CHECK(piece_ != end_) << "a run with fewer elements in its pieces than it says";
      const std::int64_t here = std::min(elements, piece_->elements - offset_);
      if (here > 0) visit(*piece_, offset_, here);
      offset_ += here;
      elements -= here;
      if (offset_ == piece_->elements) {
        ++piece_;
        offset_ = 0;
      }
    }
  }

 private:
  const data::Piece* piece_ = nullptr;
  const data::Piece* end_ = nullptr;
  std::int64_t offset_ = 0;
};

/// Messages between nodes that belong to chunks: exchange i carries those of the chunks whose number is i modulo the
/// number of slots, one chunk after another. One driver. `advance` calls the transport, and throws what that throws.
class Exchanges {
 public:
  virtual ~Exchanges() = default;
  /// Moves an exchange on; true when something moved.
  virtual bool advance(std::size_t exchange) = 0;
  /// What was to come has come; what this rank sends may still be on its way.
  [[nodiscard]] virtual bool ready(std::size_t exchange) const noexcept = 0;
  /// Nothing is open any more: the exchange may be started again.
  [[nodiscard]] virtual bool done(std::size_t exchange) const noexcept = 0;
  /// The ranks of messages that were started and have not completed.
  virtual void add_awaited(std::size_t exchange, std::vector<int>& ranks) const = 0;
};

/// What one slot holds. Whoever cuts it says here what the pipeline must know of it.
struct Chunk {
  Collective* of = nullptr;   ///< cuts it, and does its stages
  std::uint64_t number = 0;   ///< among all chunks of the set: it lies in slot number % slots
  std::int64_t begin = 0;     ///< where in the collective, as `of` counts
  std::int64_t elements = 0;  ///< how many, likewise
  PieceCursor cursor;         ///< for `of` alone
  /// Take reads the slots of peers, when those have filled them, so that a slot is free only when all have taken. Else
  /// take reads the own slot alone, when all have reduced.
  bool peers_read_at_take = false;
  bool enters_when_filled = false;  ///< `enter` is called when all ranks of the node have filled
  Exchanges* exchanges = nullptr;   ///< what carries its messages between nodes; null: there are none
};

/// Part `index` of `count` elements cut into `parts`: equal but for rounding to `granule`, so the last ones may be
/// smaller, or empty. Part 0 is the largest.
struct Part {
  std::int64_t begin = 0;
  std::int64_t elements = 0;
};
inline Part part_of(std::int64_t count, int index, int parts, std::int64_t granule) noexcept {
  const std::int64_t even = (count + parts - 1) / parts;
  const std::int64_t size = (even + granule - 1) / granule * granule;
  const std::int64_t begin = std::min(count, size * index);
  return {begin, std::min(count - begin, size)};
}

/// Calls visit(first, elements) for what of [at, at + elements) lies before the part, and behind it.
template <class Visit>
void around(const Part& part, std::int64_t at, std::int64_t elements, Visit&& visit) {
  const std::int64_t end = at + elements;
  const std::int64_t before = std::min(end, part.begin);
  const std::int64_t behind = std::max(at, part.begin + part.elements);
  if (part.elements == 0) return visit(at, elements);
  if (at < before) visit(at, before - at);
  if (behind < end) visit(behind, end - behind);
}

/// Elements in a cache line: no two ranks write the same line of a slot.
inline std::int64_t line_of(std::size_t element_bytes) noexcept {
  return static_cast<std::int64_t>(64 / element_bytes);
}

}  // namespace kolo::data::cpu
