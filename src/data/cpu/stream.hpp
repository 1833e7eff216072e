// SPDX-License-Identifier: Apache-2.0
//
// The nouns of the CPU backend: streams, chunks and parts, and the walk through a stream's pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/check.hpp"
#include "data/backend.hpp"
#include "data/kernels/reduce.hpp"

namespace kolo::data::cpu {

class AlltoallPlan;
class GatherPlan;
class ScatterPlan;

/// What fill and take do where slots hold another type than the tensors: fill multiplies by prescale, and casts.
struct Cast {
  DType memory = DType::float32;
  std::int64_t width = 0;  ///< bytes of an element in memory
  double prescale = 1;
};

/// A homogeneous sequence of elements - the concatenation of its pieces - of the same length on every rank of the set.
/// Of a gather, an alltoall and a scatter the elements are chunks, and their plan knows what is in them.
struct Stream {
  enum class Kind : std::uint8_t { reduce, broadcast, gather, alltoall, scatter };
  Kind kind = Kind::reduce;
  kernels::Reduction reduction;  ///< of a broadcast only the dtype
  std::size_t element_bytes = 0;
  std::optional<Cast> cast;             ///< then `reduction` and `element_bytes` are those of what the slots hold
  int root = 0;                         ///< of a broadcast, as a rank of the set; only its pieces have inputs
  const data::Piece* pieces = nullptr;  ///< a null output discards
  std::size_t piece_count = 0;
  std::int64_t elements = 0;
  GatherPlan* gather = nullptr;  ///< on one node; learns the lengths when its head is taken
  bool gathers_head = false;
  const AlltoallPlan* alltoall = nullptr;
  const ScatterPlan* scatter = nullptr;
};

/// How a chunk gets from everybody's inputs to everybody's outputs; see cpu_backend.hpp.
enum class Route : std::uint8_t { flat, sliced, lanes, root_slot, relayed, gather, alltoall, scatter };

/// A place in a stream, moving forward.
class PieceCursor {
 public:
  PieceCursor() noexcept = default;
  explicit PieceCursor(const Stream& stream) noexcept
      : piece_(stream.pieces), end_(stream.pieces + stream.piece_count) {}

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

/// What one slot holds.
struct Chunk {
  const Stream* stream = nullptr;
  std::int64_t begin = 0;  ///< in elements of the stream
  std::int64_t elements = 0;
  Route route = Route::flat;
  PieceCursor cursor;  ///< of a stream that reduces: at its begin

  /// Whether peers read this rank's slot when they take: then it is free only when all have taken.
  [[nodiscard]] bool peers_read_at_take() const noexcept {
    return route != Route::sliced && route != Route::lanes && route != Route::relayed;
  }
  /// Whether shares are reduced by one rank each, and the results written back to all.
  [[nodiscard]] bool is_written_back() const noexcept { return route == Route::sliced || route == Route::lanes; }
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
