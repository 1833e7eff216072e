// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/kernels/cast_floats.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "data/kernels/float_formats_inl.hpp"
#include "data/kernels/stream.hpp"
#include "data/kernels/stream_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {
namespace {

/// With one input there is nothing to combine.
struct NoOp {
  static HWY_INLINE auto apply(auto a, auto /*b*/) { return a; }
};

struct ByFactor {
  Vector<float> factor;
  HWY_INLINE Vector<float> on_load(Vector<float> v) const { return hn::Mul(v, factor); }
  HWY_INLINE Vector<float> on_store(Vector<float> v) const { return v; }
};

template <class In, class Scale>
void cast_from(DType to, const Stream& stream, const Scale& scale) {
  switch (to) {
  case DType::float16:
    return run<In, Half, NoOp>(scale, stream);
  case DType::bfloat16:
    return run<In, BrainInOrder, NoOp>(scale, stream);
  case DType::float32:
    return run<In, Whole<float>, NoOp>(scale, stream);
  default:
    HWY_ABORT("kolo: no cast to type %d", static_cast<int>(to));
  }
}

template <class Scale>
void cast_scaled(DType from, DType to, const Stream& stream, const Scale& scale) {
  switch (from) {
  case DType::float16:
    return cast_from<Half>(to, stream, scale);
  case DType::bfloat16:
    return cast_from<BrainInOrder>(to, stream, scale);
  case DType::float32:
    return cast_from<Whole<float>>(to, stream, scale);
  default:
    HWY_ABORT("kolo: no cast from type %d", static_cast<int>(from));
  }
}

void cast_floats_on_target(DType from, DType to, const Stream& stream, float factor) {
  if (factor == 1) return cast_scaled(from, to, stream, NoScale{});
  cast_scaled(from, to, stream, ByFactor{hn::Set(Tag<float>(), factor)});
}

}  // namespace
}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::kernels {

HWY_EXPORT(cast_floats_on_target);

void cast_floats(DType from, DType to, const Stream& stream, float factor) {
  HWY_DYNAMIC_DISPATCH(cast_floats_on_target)(from, to, stream, factor);
}

}  // namespace kolo::kernels
#endif
