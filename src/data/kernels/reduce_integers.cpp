// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/kernels/reduce_integers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "data/kernels/stream.hpp"
#include "data/kernels/stream_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {
namespace {

/// Two bytes in each 16-bit lane, as there is no instruction that multiplies bytes.
struct ProductOfBytes {
  static HWY_INLINE Vector<std::uint16_t> apply(Vector<std::uint16_t> a, Vector<std::uint16_t> b) {
    const auto low = hn::And(hn::Mul(a, b), hn::Set(Tag<std::uint16_t>(), 0x00FF));
    const auto high = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b)));
    return hn::Or(low, high);
  }
};
struct Min {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Min(a, b); }
};
struct Max {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Max(a, b); }
};

struct And {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::And(a, b); }
};
struct Or {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Or(a, b); }
};
struct Xor {
  static HWY_INLINE auto apply(auto a, auto b) { return hn::Xor(a, b); }
};

/// Of bytes the largest is nonzero when any is, the smallest when all are; that makes a boolean of the result.
struct ToBoolean {
  using V = Vector<std::uint8_t>;
  HWY_INLINE V on_load(V v) const { return v; }
  HWY_INLINE V on_store(V v) const { return hn::Min(v, hn::Set(Tag<std::uint8_t>(), 1)); }
};

/// Makes booleans of the inputs, so that their bits can be compared.
struct FromBoolean {
  using V = Vector<std::uint8_t>;
  HWY_INLINE V on_load(V v) const { return hn::Min(v, hn::Set(Tag<std::uint8_t>(), 1)); }
  HWY_INLINE V on_store(V v) const { return v; }
};

template <class T, class Op>
void run_plain(const Stream& stream) {
  run<Whole<T>, Whole<T>, Op>(NoScale{}, stream);
}

void reduce_booleans(ReduceOp op, const Stream& stream) {
  using Bytes = Whole<std::uint8_t>;
  if (op == ReduceOp::bit_xor) return run<Bytes, Bytes, Xor>(FromBoolean{}, stream);
  const bool any = op == ReduceOp::sum || op == ReduceOp::average || op == ReduceOp::max || op == ReduceOp::bit_or;
  return any ? run<Bytes, Bytes, Max>(ToBoolean{}, stream) : run<Bytes, Bytes, Min>(ToBoolean{}, stream);
}

/// Sums and products of signed integers are those of unsigned ones: they wrap around, and share code.
template <class Unsigned>
void multiply(const Stream& stream) {
  if constexpr (sizeof(Unsigned) == 1) {
    using Bytes = Whole<std::uint16_t, 1>;
    run<Bytes, Bytes, ProductOfBytes>(NoScale{}, stream);
  } else {
    run_plain<Unsigned, Product>(stream);
  }
}

/// One code for integers of all widths.
template <class Op>
void run_bitwise(Stream stream, std::size_t width) {
  stream.count *= static_cast<std::int64_t>(width);
  run_plain<std::uint8_t, Op>(stream);
}

template <class T, class Unsigned>
void run_op(ReduceOp op, const Stream& stream) {
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::average:
    return run_plain<Unsigned, Sum>(stream);
  case ReduceOp::min:
    return run_plain<T, Min>(stream);
  case ReduceOp::max:
    return run_plain<T, Max>(stream);
  case ReduceOp::product:
    return multiply<Unsigned>(stream);
  case ReduceOp::bit_and:
    return run_bitwise<And>(stream, sizeof(T));
  case ReduceOp::bit_or:
    return run_bitwise<Or>(stream, sizeof(T));
  case ReduceOp::bit_xor:
    return run_bitwise<Xor>(stream, sizeof(T));
  }
}

void reduce_integers_on_target(DType dtype, ReduceOp op, const Stream& stream) {
  switch (dtype) {
  case DType::boolean:
    return reduce_booleans(op, stream);
  case DType::int8:
    return run_op<std::int8_t, std::uint8_t>(op, stream);
  case DType::int16:
    return run_op<std::int16_t, std::uint16_t>(op, stream);
  case DType::int32:
    return run_op<std::int32_t, std::uint32_t>(op, stream);
  case DType::int64:
    return run_op<std::int64_t, std::uint64_t>(op, stream);
  case DType::uint8:
    return run_op<std::uint8_t, std::uint8_t>(op, stream);
  case DType::uint16:
    return run_op<std::uint16_t, std::uint16_t>(op, stream);
  case DType::uint32:
    return run_op<std::uint32_t, std::uint32_t>(op, stream);
  case DType::uint64:
    return run_op<std::uint64_t, std::uint64_t>(op, stream);
  default:
    HWY_ABORT("kolo: not an integer type: %d", static_cast<int>(dtype));
  }
}

}  // namespace
}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kolo::kernels {

HWY_EXPORT(reduce_integers_on_target);

void reduce_integers(DType dtype, ReduceOp op, const Stream& stream) {
  HWY_DYNAMIC_DISPATCH(reduce_integers_on_target)(dtype, op, stream);
}

}  // namespace kolo::kernels
#endif
