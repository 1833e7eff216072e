// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/kernels/reduce_floats.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "data/kernels/float_formats_inl.hpp"
#include "data/kernels/stream.hpp"
#include "data/kernels/stream_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {
namespace {

template <class V>
HWY_INLINE V smaller(V a, V b) {
  // Each choice answers with its last operand where the two are equal or one is a NaN. Both choices or'ed: of -0 and +0
  // it is -0, and a NaN keeps a full exponent and a mantissa that is not zero; all else is or'ed with itself.
  return hn::Or(hn::IfThenElse(hn::Lt(a, b), a, b), hn::IfThenElse(hn::Lt(b, a), b, a));
}

struct Min {
  static HWY_INLINE auto apply(auto a, auto b) { return smaller(a, b); }
};
struct Max {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Neg(smaller(hn::Neg(a), hn::Neg(b))); }
};

template <class Lane>
class Scale {
 public:
  explicit Scale(const Scaling& scaling)
      : prescale_(set(scaling.prescale)), postscale_(set(scaling.postscale)), divisor_(set(scaling.divisor)),
        reciprocal_(set(Lane{1} / static_cast<Lane>(scaling.divisor))),
        power_of_two_((scaling.divisor & (scaling.divisor - 1)) == 0) {}

  HWY_INLINE Vector<Lane> on_load(Vector<Lane> v) const { return hn::Mul(v, prescale_); }
  HWY_INLINE Vector<Lane> on_store(Vector<Lane> v) const {
    // Only of a power of two is the reciprocal exact, and the product then the quotient to the last bit; and faster.
    const Vector<Lane> quotient = power_of_two_ ? hn::Mul(v, reciprocal_) : hn::Div(v, divisor_);
    return hn::Mul(quotient, postscale_);
  }

 private:
  template <class T>
  static Vector<Lane> set(T value) {
    return hn::Set(Tag<Lane>(), static_cast<Lane>(value));
  }

  Vector<Lane> prescale_;
  Vector<Lane> postscale_;
  Vector<Lane> divisor_;
  Vector<Lane> reciprocal_;
  bool power_of_two_;
};

bool is_identity(const Scaling& scaling) {
  return scaling.prescale == 1 && scaling.postscale == 1 && scaling.divisor == 1;
}

/// Sums without scaling have a loop of their own; for the rest, multiplying by one changes no bit and costs little.
template <class In, class Out>
void run_op(const Reduction& reduction, const Stream& stream) {
  const Scale<typename In::Lane> scale(reduction.scaling);
  switch (reduction.op) {
  case ReduceOp::sum:
  case ReduceOp::average:
    return is_identity(reduction.scaling) ? run<In, Out, Sum>(NoScale{}, stream) : run<In, Out, Sum>(scale, stream);
  case ReduceOp::min:
    return run<In, Out, Min>(scale, stream);
  case ReduceOp::max:
    return run<In, Out, Max>(scale, stream);
  case ReduceOp::product:
    return run<In, Out, Product>(scale, stream);
  case ReduceOp::bit_and:
  case ReduceOp::bit_or:
  case ReduceOp::bit_xor:
    HWY_ABORT("kolo: bits of a floating-point type");
  }
}

/// `InOrder` is the format to meet float32 in, `Both` the one for 16 bits in and out.
template <class InOrder, class Both>
void run_stage(Stage stage, const Reduction& reduction, const Stream& stream) {
  switch (stage) {
  case Stage::whole:
    return run_op<Both, Both>(reduction, stream);
  case Stage::partial:
    return run_op<InOrder, Whole<float>>(reduction, stream);
  case Stage::finish:
    return run<Whole<float>, InOrder, Sum>(Scale<float>(reduction.scaling), stream);
  }
}

void reduce_floats_on_target(Stage stage, const Reduction& reduction, const Stream& stream) {
  switch (reduction.dtype) {
  case DType::float16:
    return run_stage<Half, Half>(stage, reduction, stream);
  case DType::bfloat16:
    return run_stage<BrainInOrder, BrainByParity>(stage, reduction, stream);
  case DType::float32:
    return run_op<Whole<float>, Whole<float>>(reduction, stream);
  case DType::float64:
    return run_op<Whole<double>, Whole<double>>(reduction, stream);
  default:
    HWY_ABORT("kolo: not a floating-point type: %d", static_cast<int>(reduction.dtype));
  }
}

}  // namespace
}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::kernels {

HWY_EXPORT(reduce_floats_on_target);

void reduce_floats(Stage stage, const Reduction& reduction, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(reduce_floats_on_target)(stage, reduction, stream);
}

}  // namespace kolo::kernels
#endif
