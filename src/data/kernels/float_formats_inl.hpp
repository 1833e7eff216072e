// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit floating-point formats, computed in float32 lanes. Highway 1.0.3 has conversions of its own, but its
// bfloat16 truncates, and without F16C its float16 knows neither infinity nor NaN; so they are written here, but for
// the F16C instructions, which are right (their rounding mode is in the instruction). A NaN is found by IsNaN: on AVX,
// Highway's `!=` calls it equal to itself.
//
// Compiled once for each instruction set, hence the unusual guard.
#if defined(KOLO_KERNELS_FLOAT_FORMATS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef KOLO_KERNELS_FLOAT_FORMATS_INL_HPP
#undef KOLO_KERNELS_FLOAT_FORMATS_INL_HPP
#else
#define KOLO_KERNELS_FLOAT_FORMATS_INL_HPP
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "data/kernels/stream_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kolo::kernels::HWY_NAMESPACE {

using Float = Vector<float>;
using Bits = Vector<std::uint32_t>;

HWY_INLINE Bits bits_of(Float v) { return hn::BitCast(Tag<std::uint32_t>(), v); }
HWY_INLINE Float float_of(Bits v) { return hn::BitCast(Tag<float>(), v); }
HWY_INLINE Bits bits(std::uint32_t value) { return hn::Set(Tag<std::uint32_t>(), value); }

/// Below, for operands without sign bit: SSE and AVX2 compare signed integers faster than unsigned ones.
HWY_INLINE auto less(Bits a, Bits b) {
  const Tag<std::int32_t> d;
  return hn::RebindMask(Tag<std::uint32_t>(), hn::Lt(hn::BitCast(d, a), hn::BitCast(d, b)));
}

/// 16 bits of memory to the lower half of each lane, and back; the upper half must be zero on the way back.
HWY_INLINE Bits load_u16(const std::uint16_t* memory) {
  return hn::PromoteTo(Tag<std::uint32_t>(), hn::LoadU(hn::Rebind<std::uint16_t, Tag<std::uint32_t>>(), memory));
}
HWY_INLINE void store_u16(Bits v, std::uint16_t* memory) {
  const hn::Rebind<std::uint16_t, Tag<std::uint32_t>> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(Tag<std::int32_t>(), v)), d16, memory);
}

/// A bfloat16 in the upper half of each lane, the lower half garbage: rounded to nearest, ties to even, by adding just
/// under half a unit, or half a unit where the last kept bit is odd. A carry out of the mantissa is right, up to
/// infinity. NaNs are set aside: the addition could turn them into infinity or zero.
HWY_INLINE Bits round_to_bfloat16(Float v) {
  const Bits b = bits_of(v);
  const Bits odd = hn::And(hn::ShiftRight<16>(b), bits(1));
  const Bits rounded = hn::Add(hn::Add(b, bits(0x7FFF)), odd);
  const auto is_nan = hn::RebindMask(Tag<std::uint32_t>(), hn::IsNaN(v));
  return hn::IfThenElse(is_nan, hn::Or(b, bits(0x00400000)), rounded);
}

struct SixteenBits {
  using Lane = float;
  static constexpr std::size_t kElementBytes = 2;
  static constexpr std::size_t kUnitBytes = 2 * kLanes<float> * 2;
};

/// bfloat16 in the order of memory.
struct BrainInOrder : SixteenBits {
  static HWY_INLINE Pair<float> load(const std::uint8_t* memory) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(memory);
    return {float_of(hn::ShiftLeft<16>(load_u16(halves))),
            float_of(hn::ShiftLeft<16>(load_u16(halves + kLanes<float>)))};
  }
  static HWY_INLINE void store(const Pair<float>& pair, std::uint8_t* memory) {
    auto* halves = reinterpret_cast<std::uint16_t*>(memory);
    store_u16(hn::ShiftRight<16>(round_to_bfloat16(pair.first)), halves);
    store_u16(hn::ShiftRight<16>(round_to_bfloat16(pair.second)), halves + kLanes<float>);
  }
};

/// bfloat16 where it comes in and goes out: the elements with even numbers (on a little-endian machine; which ones
/// does not matter) in the first vector, those with odd ones in the second, so that no lane ever moves.
struct BrainByParity : SixteenBits {
  static HWY_INLINE Pair<float> load(const std::uint8_t* memory) {
    const Bits both = hn::LoadU(Tag<std::uint32_t>(), reinterpret_cast<const std::uint32_t*>(memory));
    return {float_of(hn::ShiftLeft<16>(both)), float_of(hn::And(both, bits(0xFFFF0000)))};
  }
  static HWY_INLINE void store(const Pair<float>& pair, std::uint8_t* memory) {
    const Bits even = hn::ShiftRight<16>(round_to_bfloat16(pair.first));
    const Bits odd = hn::And(round_to_bfloat16(pair.second), bits(0xFFFF0000));
    hn::StoreU(hn::Or(even, odd), Tag<std::uint32_t>(), reinterpret_cast<std::uint32_t*>(memory));
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // F16C

HWY_INLINE Float load_float16(const std::uint16_t* memory) {
  const hn::Rebind<hwy::float16_t, Tag<float>> d16;
  return hn::PromoteTo(Tag<float>(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(memory)));
}
HWY_INLINE void store_float16(Float v, std::uint16_t* memory) {
  const hn::Rebind<hwy::float16_t, Tag<float>> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(memory));
}

#else

/// Exponent and mantissa moved to their places in a float32 make the number times 2^-112, subnormal ones included; the
/// multiplication is exact. Infinity and NaN get the exponent that says so.
HWY_INLINE Float load_float16(const std::uint16_t* memory) {
  const Bits half = load_u16(memory);
  const Bits magnitude = hn::And(half, bits(0x7FFF));
  const Bits sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
  const Bits scaled = bits_of(hn::Mul(float_of(hn::ShiftLeft<13>(magnitude)), hn::Set(Tag<float>(), 0x1p112F)));
  const Bits special = hn::IfThenElseZero(less(bits(0x7BFF), magnitude), bits(0x7F800000));
  return float_of(hn::Or(hn::Or(scaled, special), sign));
}

/// Normal results are rounded as bfloat16 is, the exponent rebased on the way. For subnormal ones the addition of 0.5
/// does the rounding: its last bit is worth 2^-24, as is the last bit of a subnormal float16.
HWY_INLINE void store_float16(Float v, std::uint16_t* memory) {
  const Bits b = bits_of(v);
  const Bits magnitude = hn::And(b, bits(0x7FFFFFFF));
  const Bits sign = hn::Xor(b, magnitude);
  const Bits half = bits(0x3F000000);
  const Bits subnormal = hn::Sub(bits_of(hn::Add(float_of(magnitude), float_of(half))), half);
  const Bits odd = hn::And(hn::ShiftRight<13>(magnitude), bits(1));
  const Bits rebased = hn::Sub(magnitude, bits(112U << 23));
  const Bits normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebased, bits(0xFFF)), odd));
  const Bits special = hn::IfThenElse(less(bits(0x7F800000), magnitude), bits(0x7E00), bits(0x7C00));
  const Bits finite = hn::IfThenElse(less(magnitude, bits(113U << 23)), subnormal, normal);
  const Bits result = hn::IfThenElse(less(magnitude, bits(143U << 23)), finite, special);
  store_u16(hn::Or(result, hn::ShiftRight<16>(sign)), memory);
}

#endif

struct Half : SixteenBits {
  static HWY_INLINE Pair<float> load(const std::uint8_t* memory) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(memory);
    return {load_float16(halves), load_float16(halves + kLanes<float>)};
  }
  static HWY_INLINE void store(const Pair<float>& pair, std::uint8_t* memory) {
    auto* halves = reinterpret_cast<std::uint16_t*>(memory);
    store_float16(pair.first, halves);
    store_float16(pair.second, halves + kLanes<float>);
  }
};

}  // namespace kolo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // guard of this instruction set
