// SPDX-License-Identifier: Apache-2.0
#include "kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cast_floats.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/float_formats_inl.hpp"
#include "kernels/stream.hpp"
#include "kernels/stream_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {
namespace {

/// With one input there is nothing to combine.
struct NoOp {
  template <class V>
  static HWY_INLINE V apply(V a, V /*b*/) {
    return a;
  }
};

template <class In>
void cast_from(DType to, const Stream& stream) {
  switch (to) {
  case DType::float16:
    return run<In, Half, NoOp>(NoScale{}, stream);
  case DType::bfloat16:
    return run<In, BrainInOrder, NoOp>(NoScale{}, stream);
  case DType::float32:
    return run<In, Whole<float>, NoOp>(NoScale{}, stream);
  default:
    HWY_ABORT("kolo: no cast to type %d", static_cast<int>(to));
  }
}

void cast_floats_on_target(DType from, DType to, const Stream& stream) {
  switch (from) {
  case DType::float16:
    return cast_from<Half>(to, stream);
  case DType::bfloat16:
    return cast_from<BrainInOrder>(to, stream);
  case DType::float32:
    return cast_from<Whole<float>>(to, stream);
  default:
    HWY_ABORT("kolo: no cast from type %d", static_cast<int>(from));
  }
}

}  // namespace
}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::kernels {

HWY_EXPORT(cast_floats_on_target);

void cast_floats(DType from, DType to, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(cast_floats_on_target)(from, to, stream);
}

}  // namespace kolo::kernels
#endif
