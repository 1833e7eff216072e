// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floats to float32 and back, one at a time: exact one way, rounded to nearest even the other. Infinities and
// subnormals are kept; a NaN stays a NaN, becomes quiet, and keeps its sign and the upper bits of its payload.
#pragma once

#include <bit>
#include <cstdint>

#include <kolo/types.hpp>

namespace kolo::base {

inline constexpr float to_float(BFloat16 value) noexcept {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return std::bit_cast<float>(nan ? bits | 0x00400000U : bits);
}

inline constexpr BFloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN's payload into an infinity.
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  const std::uint32_t even = (bits >> 16) & 1U;
  return {static_cast<std::uint16_t>((bits + 0x7fffU + even) >> 16)};
}

inline constexpr float to_float(Float16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = value.bits & 0x3ffU;
  if (exponent == 0x1f) {
    const std::uint32_t quiet = fraction != 0 ? 0x00400000U : 0;
    return std::bit_cast<float>(sign | 0x7f800000U | quiet | (fraction << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  // A subnormal is fraction x 2^-24, which float32 holds exactly.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

inline constexpr Float16 to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
  // From halfway between the largest finite number, 65504, and 65536 on, nearest is infinity.
  if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal, a multiple of 2^-24. In float32 the numbers from 0.5 to 1 are 2^-24 apart,
    // so adding 0.5 rounds to such a multiple, to nearest even (if the rounding mode is the default one).
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
  }
  const std::uint32_t even = (magnitude >> 13) & 1U;
  const std::uint32_t rounded = magnitude + 0xfffU + even - (112U << 23);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace kolo::base
