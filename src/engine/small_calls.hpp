// SPDX-License-Identifier: Apache-2.0
//
// What unnamed calls that avoid the log do with their data (control/shortcut.hpp says why they may avoid it).
//
// Before a rank says its word, it copies its input beside the word: `lay_out`. Once all have said the same, each rank
// takes what it needs from all inputs: `take`.
//
//   allreduce            each rank reduces all inputs
//   reduce               the root reduces all inputs
//   reduce_scatter       each rank reduces its rows of all inputs
//   broadcast            each rank copies the root's input
//   alltoall             each rank copies its block of each input
//   allgather, gather    an input lies behind its length; each rank, or the root, copies all of them
//   scatter              the root's input lies behind the number of rows that each rank gets; each rank copies its own
//
// Nobody waits in either. A rank that returns from `take` is done; its input may change at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <kolo/types.hpp>

#include "control/shortcut.hpp"
#include "core/signature.hpp"
#include "data/kernels/peer_copy.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

/// An unnamed call on memory of the CPU, checked.
struct SmallCall {
  core::CollectiveKind kind = core::CollectiveKind::barrier;
  DType dtype = DType::float32;
  Shape shape;  ///< as in the signature: of gathers and scatters a row's
  ReduceOp op = ReduceOp::sum;
  double prescale = 1;
  double postscale = 1;
  int root = 0;
  Buffer buffer;
  Span<const std::int64_t> splits;   ///< of a scatter's root: rows for each rank
  std::int64_t output_elements = 0;  ///< of a scatter: the size of the given output
  /// Of gathers: the output, given how many bytes each rank gives. Of scatters: the output, given how many rows come
  /// from each rank. May throw Error.
  std::function<std::byte*(const std::vector<std::int64_t>&)> make_room;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(buffer.elements) * size_of(dtype);
  }
};

/// Of one rank in one set. One call at a time.
class SmallCalls {
 public:
  /// `shortcut` outlives this. `to_peers`: how inputs are written.
  SmallCalls(control::Shortcut& shortcut, kernels::PeerCopy to_peers);

  /// Copies this rank's input for its peers, in a call that has begun and before this rank speaks. False: the call is
  /// too long, and must go by the log.
  [[nodiscard]] bool lay_out(const SmallCall& call);
  /// How many bytes the last `lay_out` has copied.
  [[nodiscard]] std::size_t laid_out() const noexcept { return laid_out_; }
  /// Once all ranks have said the same: this rank's result. Throws what `make_room` throws.
  void take(const SmallCall& call);

 private:
  /// A range of an input, in bytes.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  [[nodiscard]] bool fits(std::size_t bytes, std::size_t head = 0) const noexcept;
  [[nodiscard]] std::byte* input_of(int rank, std::size_t bytes, std::size_t head = 0) const noexcept;
  [[nodiscard]] Range rows_of(const SmallCall& call, int rank) const noexcept;
  [[nodiscard]] std::size_t block_bytes(const SmallCall& call) const noexcept;
  [[nodiscard]] Range unread_of(const SmallCall& call) const noexcept;
  void copy_in(const SmallCall& call, std::byte* to, Range unread);
  [[nodiscard]] bool lay_out_contribution(const SmallCall& call);
  [[nodiscard]] bool lay_out_rows(const SmallCall& call);
  void reduce(const SmallCall& call, Range range);
  void take_contributions(const SmallCall& call);
  void take_scattered(const SmallCall& call);
  void exchange(const SmallCall& call) const;

  control::Shortcut& shortcut_;
  const int ranks_;
  const int own_;
  const kernels::PeerCopy copy_;
  std::size_t laid_out_ = 0;
  std::vector<const void*> inputs_;    // the arguments of a reduction, by rank
  std::vector<std::int64_t> lengths_;  // the argument of `make_room`
};

}  // namespace kolo::engine
