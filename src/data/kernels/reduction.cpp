// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/reduction.hpp"

#include "data/kernels/targets.hpp"

#include <hwy/base.h>
#include <hwy/targets.h>

#include "data/kernels/stream.hpp"

// Aborts are Highway's: this module and base are on one layer, and neither includes the other.

namespace kolo::kernels {
namespace {

void check(const Reduction& reduction, int n, std::int64_t count) {
  const Scaling& scaling = reduction.scaling;
  HWY_ASSERT(n >= 1 && count >= 0);
  HWY_ASSERT(scaling.divisor >= 1);
  HWY_ASSERT(is_floating_point(reduction.dtype) ||
             (scaling.prescale == 1 && scaling.postscale == 1 && scaling.divisor == 1));
}

void run(Stage stage, const Reduction& reduction, const Stream& stream) {
  check(reduction, stream.n, stream.count);
  if (stream.count == 0) return;
  if (is_floating_point(reduction.dtype)) {
    reduce_floats(stage, reduction, stream);
  } else {
    reduce_integers(reduction.dtype, reduction.op, stream);
  }
}

}  // namespace

DType accumulator_of(DType dtype) noexcept {
  return dtype == DType::float16 || dtype == DType::bfloat16 ? DType::float32 : dtype;
}

void reduce(const Reduction& reduction, const void* const* inputs, int n, void* output, std::int64_t count, int own) {
  run(Stage::whole, reduction, {inputs, n, &output, 1, count, false, own});
}

void reduce_past_cache(const Reduction& reduction, const void* const* inputs, int n, void* output, std::int64_t count,
                       int own) {
  run(Stage::whole, reduction, {inputs, n, &output, 1, count, true, own});
}

void reduce_to_all(const Reduction& reduction, const void* const* inputs, int n, void* const* outputs, int copies,
                   std::int64_t count) {
  HWY_ASSERT(copies >= 1);
  run(Stage::whole, reduction, {inputs, n, outputs, copies, count});
}

void reduce_partial(const Reduction& reduction, const void* const* inputs, int n, void* accumulator,
                    std::int64_t count) {
  Reduction partial = reduction;
  partial.scaling = {reduction.scaling.prescale, 1, 1};
  run(Stage::partial, partial, {inputs, n, &accumulator, 1, count});
}

void finish(const Reduction& reduction, const void* accumulator, void* output, std::int64_t count) {
  Reduction last = reduction;
  last.scaling = {1, reduction.scaling.postscale, reduction.scaling.divisor};
  run(Stage::finish, last, {&accumulator, 1, &output, 1, count});
}

const char* instruction_set() noexcept {
  const auto supported = static_cast<std::uint64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  // Better sets have lower bits.
  return hwy::TargetName(static_cast<std::int64_t>(supported & (~supported + 1)));
}

}  // namespace kolo::kernels
