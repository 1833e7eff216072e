// SPDX-License-Identifier: Apache-2.0
//
// What passes between the public calls of this module (reduction.cpp, cast.cpp), which check and choose, and the vector
// code, which is compiled once for each instruction set and dispatched at run time.
#ifndef KOLO_KERNELS_STREAM_HPP
#define KOLO_KERNELS_STREAM_HPP

#include <cstddef>
#include <cstdint>

#include "base/machine.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::kernels {

/// So far ahead lines are claimed that will be read and then written: further than the processor fetches by itself what
/// is read, which would bring them to be shared.
inline constexpr std::size_t kClaimAhead = 2048;
/// The same of lines that another core has written, and that are only read: they may come from memory.
inline constexpr std::size_t kFetchAhead = 4096;

/// One pass over memory: n arrays in, the same result into every array that goes out, `count` elements each.
struct Stream {
  const void* const* inputs;
  int n;
  void* const* outputs;
  int copies;
  std::int64_t count;
  bool past_cache = false;  ///< of one output, disjoint from the inputs
  int own = kNoneIsOwn;     ///< of one output: the input that is this core's own
};

/// Which of the two types, the element's or its accumulator's, comes in and goes out.
enum class Stage { whole, partial, finish };

/// Floating-point types; all three factors of the scaling are applied.
void reduce_floats(Stage stage, const Reduction& reduction, const Stream& stream);
/// Integers and booleans.
void reduce_integers(DType dtype, ReduceOp op, const Stream& stream);
/// float16, bfloat16 and float32, in any pair of two different ones; one input, multiplied by the factor in float32.
void cast_floats(DType from, DType to, const Stream& stream, float factor = 1);

}  // namespace kolo::kernels

#endif  // KOLO_KERNELS_STREAM_HPP
