// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/float_mode.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>

namespace {

using kolo::kernels::FloatMode;

constexpr std::uint32_t kDefault = 0x1f80;
constexpr std::uint32_t kRounded = 0x0020;      // noted: something has been rounded
constexpr std::uint32_t kFlushToZero = 0x8000;  // a mode
constexpr std::uint32_t kTowardZero = 0x6000;   // likewise

/// A sum that is rounded.
float third() {
  const volatile float one = 1;
  const volatile float three = 3;
  return one / three;
}

/// The register within a FloatMode, when something has been rounded there.
std::uint32_t inside_of(std::uint32_t before) {
  _mm_setcsr(before);
  std::uint32_t inside = 0;
  {
    const FloatMode mode;
    EXPECT_GT(third(), 0);
    inside = _mm_getcsr();
  }
  return inside;
}

TEST(FloatMode, GivesTheRegisterBackToTheBit) {
  for (const std::uint32_t noted : {std::uint32_t{0}, kRounded, std::uint32_t{0x3f}}) {
    for (const std::uint32_t modes : {std::uint32_t{0}, kFlushToZero, kTowardZero, kFlushToZero | kTowardZero}) {
      const std::uint32_t before = kDefault | modes | noted;
      const std::uint32_t inside = inside_of(before);
      EXPECT_EQ(_mm_getcsr(), before);
      EXPECT_EQ(inside & ~std::uint32_t{0x3f}, kDefault) << std::hex << before;
      EXPECT_NE(inside & kRounded, 0U) << "a check of this test";
      _mm_setcsr(kDefault);
    }
  }
}

}  // namespace
#endif
