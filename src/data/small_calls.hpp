// SPDX-License-Identifier: Apache-2.0
//
// What calls that take the shortcut (control/shortcut.hpp) do with their data.
//
// Before a rank says its word, it copies its input beside the word: `lay_out`. Once all have said the same, each rank
// takes what it needs from all inputs: `take`. Nobody waits in either. A rank that returns from `take` is done; its
// input may change at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <kolo/types.hpp>

#include "core/shortcut_memory.hpp"
#include "core/signature.hpp"
#include "data/backend.hpp"

namespace kolo::data {

/// A blocking call without a name on memory of the CPU, checked.
struct SmallCall {
  core::CollectiveKind kind = core::CollectiveKind::barrier;
  DType dtype = DType::float32;
  Shape shape;  ///< as in the signature: of gathers and scatters a row's
  ReduceOp op = ReduceOp::sum;
  double prescale = 1;
  double postscale = 1;
  int root = 0;
  Piece tensor;                      ///< its elements are the input's
  Span<const std::int64_t> splits;   ///< of a scatter's root: rows for each rank
  std::int64_t output_elements = 0;  ///< of a scatter: the size of the given output
  /// Of gathers: the output, given how many bytes each rank gives. Of scatters: the output, given how many rows come
  /// from each rank. May throw Error.
  std::function<std::byte*(const std::vector<std::int64_t>&)> make_room;

  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(tensor.elements) * size_of(dtype);
  }
};

/// Of one rank in one set. One call at a time, in the order of their numbers.
class SmallCalls {
 public:
  virtual ~SmallCalls() = default;
  /// Copies this rank's input for its peers, in a call that has begun and before this rank speaks. False: the call must
  /// go by the log, as where it is too long.
  [[nodiscard]] virtual bool lay_out(core::Round number, const SmallCall& call) = 0;
  /// A hint, once this rank has spoken: the next call's input may be as long as this one's.
  virtual void expect_next() noexcept = 0;
  /// Once all ranks have said the same: this rank's result. Throws what `make_room` throws.
  virtual void take(const SmallCall& call) = 0;
};
using MakeSmallCalls = std::function<std::unique_ptr<SmallCalls>(core::ShortcutMemory)>;

}  // namespace kolo::data
