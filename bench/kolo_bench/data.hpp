// SPDX-License-Identifier: Apache-2.0
//
// Data whose reductions are exact in every type, and the check against what must come out.
//
// Rank r gives (3 i + 5 r) mod 8 at element i (booleans: whether that is odd); for products 2 where i mod n == r and
// else
// 1. Sums over up to 32 ranks stay below 256, which even a bfloat16 holds exactly. An average is one rounded division.
#pragma once

#include <cstdint>
#include <vector>

#include <kolo/types.hpp>

namespace kolo_bench {

/// Memory for elements of any type, 64-byte aligned.
class Buffer {
 public:
  Buffer(kolo::DType dtype, std::int64_t elements) : tensor_(dtype, kolo::Shape{elements}) {}
  [[nodiscard]] kolo::TensorView view() { return tensor_.view(); }
  [[nodiscard]] void* data() { return tensor_.data(); }
  [[nodiscard]] std::int64_t elements() const { return tensor_.elements(); }
  [[nodiscard]] kolo::DType dtype() const { return tensor_.dtype(); }
  [[nodiscard]] std::int64_t bytes() const { return tensor_.bytes(); }
  /// Bytes that no result has.
  void poison();

 private:
  kolo::Tensor tensor_;
};

/// What `rank` of `ranks` gives. `first`: the number of the buffer's first element in the whole.
void fill_input(Buffer& buffer, kolo::ReduceOp op, int rank, int ranks, std::int64_t first = 0);
/// Elements that are not the exact reduction over `ranks` ranks.
std::int64_t count_wrong_reduction(Buffer& buffer, kolo::ReduceOp op, int ranks);
/// The same for `count` elements at `at` in the buffer, of which the first is number `first` in the whole.
std::int64_t count_wrong_reduction(Buffer& buffer, kolo::ReduceOp op, int ranks, std::int64_t at, std::int64_t count,
                                   std::int64_t first);
/// Writes what `count_wrong_copy` wants of `rank` into a part of the buffer.
void fill_part(Buffer& buffer, int rank, std::int64_t first, std::int64_t count);
/// Elements that are not what `rank` gave; `first` and `count` say which part of the buffer.
std::int64_t count_wrong_copy(Buffer& buffer, int rank, std::int64_t first, std::int64_t count);

}  // namespace kolo_bench
