// SPDX-License-Identifier: Apache-2.0
#include "base/half.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace kolo::base {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// What 16 bits mean, in double, by the definition of the format.
double meaning(std::uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

/// Walks along all finite non-negative numbers of a format and checks what lies between each and the next.
template <class Half, class ToHalf>
void check_rounding(int fraction_bits, ToHalf to_half) {
  const auto infinity = static_cast<std::uint16_t>(((1 << (15 - fraction_bits)) - 1) << fraction_bits);
  for (std::uint16_t low = 0; low < infinity; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    // "The next number" after the largest finite one would be a power of two: nearest is decided as if it existed.
    const float middle = static_cast<float>((meaning(low, fraction_bits) + meaning(high, fraction_bits)) / 2);
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(to_half(float_of(bits_of(middle) - 1)).bits, low) << low;
    ASSERT_EQ(to_half(middle).bits, even) << low;
    ASSERT_EQ(to_half(float_of(bits_of(middle) + 1)).bits, high) << low;
    ASSERT_EQ(to_half(-middle).bits, even | 0x8000) << low;
  }
}

TEST(Float16, EveryNumberThereAndBack) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const Float16 half{static_cast<std::uint16_t>(i)};
    const float value = to_float(half);
    if ((i & 0x7fff) > 0x7c00) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_EQ(to_float16(value).bits, i | 0x0200) << "quiet, sign and payload kept";
    } else if ((i & 0x7fff) == 0x7c00) {
      ASSERT_EQ(value, i == 0x7c00 ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity());
      ASSERT_EQ(to_float16(value).bits, i);
    } else {
      ASSERT_EQ(static_cast<double>(value), meaning(half.bits, 10)) << i;
      ASSERT_EQ(std::signbit(value), (i & 0x8000) != 0) << i;
      ASSERT_EQ(to_float16(value).bits, i);
    }
  }
}

TEST(Float16, RoundsToNearestEvenEverywhere) {
  check_rounding<Float16>(10, [](float x) { return to_float16(x); });
}

TEST(Float16, Extremes) {
  EXPECT_EQ(to_float16(65504.F).bits, 0x7bff);
  EXPECT_EQ(to_float16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.F).bits, 0x7c00);
  EXPECT_EQ(to_float16(-1e30F).bits, 0xfc00);
  EXPECT_EQ(to_float16(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(to_float16(-0.F).bits, 0x8000);
  EXPECT_EQ(to_float16(0x1p-25F).bits, 0x0000) << "halfway to the smallest, to even";
  EXPECT_EQ(to_float16(0x1.000002p-25F).bits, 0x0001);
  EXPECT_EQ(to_float16(float_of(0x7f800001)).bits, 0x7e00) << "a payload below what fits is still a NaN";
}

TEST(BFloat16, EveryNumberThereAndBack) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const BFloat16 half{static_cast<std::uint16_t>(i)};
    const float value = to_float(half);
    if ((i & 0x7fff) > 0x7f80) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_EQ(bits_of(value), (i << 16) | 0x00400000U);
      ASSERT_EQ(to_bfloat16(value).bits, i | 0x0040);
    } else {
      ASSERT_EQ(bits_of(value), i << 16);
      ASSERT_EQ(to_bfloat16(value).bits, i);
    }
  }
}

TEST(BFloat16, RoundsToNearestEvenEverywhere) {
  check_rounding<BFloat16>(7, [](float x) { return to_bfloat16(x); });
}

TEST(BFloat16, Extremes) {
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80) << "nearest is infinity";
  EXPECT_EQ(to_bfloat16(float_of(0x7f7f7fff)).bits, 0x7f7f);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(to_bfloat16(-0.F).bits, 0x8000);
  EXPECT_EQ(to_bfloat16(float_of(0x7f800001)).bits, 0x7fc0) << "a payload below what fits is still a NaN";
  EXPECT_EQ(to_bfloat16(float_of(0xffffffff)).bits, 0xffff);
}

TEST(Half, IsConstant) {
  static_assert(to_float(Float16{0x3c00}) == 1.F);
  static_assert(to_float16(1.5F).bits == 0x3e00);
  static_assert(to_float16(0x1p-24F).bits == 0x0001);
  static_assert(to_bfloat16(1.F).bits == 0x3f80);
  static_assert(to_float(BFloat16{0x3f80}) == 1.F);
}

}  // namespace
}  // namespace kolo::base
