// SPDX-License-Identifier: Apache-2.0
//
// Reduce, cast and scale on the CPU, with the widest vectors the machine has.
//
// What every function here promises: elements are independent of each other, the operation runs over the inputs in the
// order given, and each step is rounded on its own (no fused multiply-add). So a result depends on the values alone:
// not on the vector width, not on where an element lies in its chunk, not on how a tensor was cut into chunks.
//
// Arithmetic
// - Booleans are bytes; any nonzero byte is true, results are 0 or 1. Sum and max are "or", product and min are "and".
// - Integers wrap around on overflow.
// - float16 and bfloat16 are computed in float32 and rounded to nearest, ties to even, once, at the end.
// - min and max of floats are those of IEEE 754-2019 (minimum, maximum): NaN if any input is NaN, and -0 < +0.
// - A NaN stays a NaN; its sign and payload are unspecified, and are the one thing that may differ between machines.
//
// Pointers may have any alignment. Counts are elements and may be zero (then no pointer is read). Every function may be
// called from any number of threads at once, keeps no state, allocates nothing and cannot fail; what a caller must not
// do (no inputs, scaling of integers, a divisor below one) aborts.
#ifndef KOLO_KERNELS_REDUCE_HPP
#define KOLO_KERNELS_REDUCE_HPP

#include <cstdint>

#include <kolo/types.hpp>

namespace kolo::kernels {

/// The type that partial results are kept in: float32 for float16 and bfloat16, else the type itself.
DType accumulator_of(DType dtype) noexcept;

/// result = reduce(prescale * x_r) / divisor * postscale, each step rounded in the accumulator type. The division is a
/// true one: the average of equal numbers is that number whenever their sum is exact. Floating-point types only; for
/// all others it must be the identity.
struct Scaling {
  double prescale = 1;
  double postscale = 1;
  std::int64_t divisor = 1;  ///< at least 1
};

/// One reduction. `ReduceOp::average` is computed as `sum`: the caller, who knows the number of ranks, sets the
/// divisor.
struct Reduction {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  Scaling scaling;
};

inline constexpr int kNoneIsOwn = -1;

/// output[i] = finish(op over r = 0 .. n-1, in this order, of prescale * inputs[r][i]). Inputs are n (at least 1)
/// arrays of `dtype`; so is the output, which may be one of the inputs (exactly the same pointer) or disjoint from all.
/// `own`, a hint: this input is this core's own, and the others have been written by other cores.
void reduce(const Reduction& reduction, const void* const* inputs, int n, void* output, std::int64_t count,
            int own = kNoneIsOwn);

/// The same by stores that do not bring the output into the cache first, as copy_past_cache has it. The output is
/// disjoint from all inputs.
void reduce_past_cache(const Reduction& reduction, const void* const* inputs, int n, void* output, std::int64_t count,
                       int own = kNoneIsOwn);

/// The same as `reduce` with the result in each of `copies` (at least 1) arrays, which are disjoint from each other, in
/// one pass.
void reduce_to_all(const Reduction& reduction, const void* const* inputs, int n, void* const* outputs, int copies,
                   std::int64_t count);

/// As `reduce`, without finishing: `accumulator` is an array of accumulator_of(dtype), the partial result of one node.
/// It may be one of the inputs only where the accumulator type is `dtype` itself.
void reduce_partial(const Reduction& reduction, const void* const* inputs, int n, void* accumulator,
                    std::int64_t count);

/// output[i] = accumulator[i] / divisor * postscale, rounded to `dtype`. May be in place only where the accumulator
/// type is `dtype` itself.
void finish(const Reduction& reduction, const void* accumulator, void* output, std::int64_t count);

/// Converts among float16, bfloat16, float32 and float64, rounding once, to nearest, ties to even; too large a number
/// becomes infinity. Source and destination are disjoint, or the same pointer where both types have one size.
void cast(DType from, const void* source, DType to, void* destination, std::int64_t count);
/// The same of different types, but not to float64, with every number multiplied first, in float64 where that is the
/// source's type, else in float32.
void scale_and_cast(DType from, const void* source, DType to, void* destination, std::int64_t count, double factor);

/// The name of the instruction set that the kernels use on this machine, as Highway calls it: "AVX3", "AVX2", "EMU128".
const char* instruction_set() noexcept;

}  // namespace kolo::kernels

#endif  // KOLO_KERNELS_REDUCE_HPP
