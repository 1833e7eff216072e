// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "data/kernels/reduction.hpp"
#include "support.hpp"

namespace kolo::kernels {
namespace {

constexpr DType kFloats[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};
constexpr std::int64_t kAll = 65536;

reference::Narrow format_of(DType dtype) {
  return dtype == DType::float16 ? reference::kFloat16 : reference::kBFloat16;
}

/// Element by element through double, which holds every number of the four types.
std::vector<unsigned char> expected_of(DType from, const void* source, DType to, std::int64_t count) {
  std::vector<unsigned char> result(static_cast<std::size_t>(count * reference::bytes_of(to)));
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = reference::value_of(from, source, i);
    switch (to) {
    case DType::float64:
      reference::write(result.data(), i, value);
      break;
    case DType::float32:
      reference::write(result.data(), i, static_cast<float>(value));
      break;
    default:
      reference::write(result.data(), i, reference::encode(format_of(to), value));
    }
  }
  return result;
}

std::vector<std::uint16_t> all_16_bit_numbers() {
  std::vector<std::uint16_t> all(kAll);
  for (std::int64_t i = 0; i < kAll; ++i) all[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i);
  return all;
}

class Cast : public OnEveryTarget {
 protected:
  static void expect_cast(DType from, const void* source, DType to, std::int64_t count, std::int64_t offset = 0) {
    const auto expected = expected_of(from, source, to, count);
    Memory actual(count * reference::bytes_of(to), offset);
    cast(from, source, to, actual.data(), count);
    ASSERT_TRUE(same(to, expected.data(), actual.data(), count)) << int(from) << " to " << int(to);
    ASSERT_TRUE(actual.surroundings_untouched());
  }
};
KOLO_ON_EVERY_TARGET(Cast);

TEST_P(Cast, All16BitNumbersToEveryTypeAndBack) {
  const auto all = all_16_bit_numbers();
  for (const DType narrow : {DType::float16, DType::bfloat16}) {
    for (const DType to : kFloats) ASSERT_NO_FATAL_FAILURE(expect_cast(narrow, all.data(), to, kAll));
    for (const DType wide : {DType::float32, DType::float64}) {
      std::vector<double> widened(kAll);
      std::vector<std::uint16_t> back(kAll, 0xA5A5);
      cast(narrow, all.data(), wide, widened.data(), kAll);
      cast(wide, widened.data(), narrow, back.data(), kAll);
      ASSERT_TRUE(same(narrow, all.data(), back.data(), kAll)) << int(narrow) << " by " << int(wide);
    }
  }
}

TEST_P(Cast, ScalesBeforeItRounds) {
  // Most are beyond float16, and not by 2^-10.
  constexpr std::int64_t kCount = 1000;
  std::vector<float> singles(kCount);
  std::vector<double> doubles(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    doubles[static_cast<std::size_t>(i)] = static_cast<double>(2 * i - 999) * (1 << 14);
    singles[static_cast<std::size_t>(i)] = static_cast<float>(doubles[static_cast<std::size_t>(i)]);
  }
  for (const DType narrow : {DType::float16, DType::bfloat16}) {
    std::vector<std::uint16_t> expected(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      reference::write(expected.data(), i,
                       reference::encode(format_of(narrow), doubles[static_cast<std::size_t>(i)] / 1024));
    }
    for (const bool wide : {false, true}) {
      const void* source = wide ? static_cast<const void*>(doubles.data()) : singles.data();
      Memory actual(kCount * 2, 6);
      scale_and_cast(wide ? DType::float64 : DType::float32, source, narrow, actual.data(), kCount, 1.0 / 1024);
      ASSERT_TRUE(same(narrow, expected.data(), actual.data(), kCount)) << int(narrow) << wide;
      ASSERT_TRUE(actual.surroundings_untouched());
    }
  }
}

// Around every 16-bit number and every middle between two of them: the number itself, and its neighbours in the wide
// type, just below and just above. A double next to a middle is what rounding twice gets wrong.
template <class Wide>
std::vector<Wide> numbers_around_middles(reference::Narrow format) {
  std::vector<Wide> numbers;
  for (int bits = 0; bits < 0x7FFF; ++bits) {
    const double low = reference::decode(format, static_cast<std::uint16_t>(bits));
    const double high = reference::decode(format, static_cast<std::uint16_t>(bits + 1));
    if (!std::isfinite(low)) continue;
    // Above the largest number the middle is where infinity begins.
    const double step =
        std::isinf(high) ? low - reference::decode(format, static_cast<std::uint16_t>(bits - 1)) : high - low;
    for (const double centre : {low, low + step / 2}) {
      const auto wide = static_cast<Wide>(centre);
      for (const Wide x : {wide, std::nextafter(wide, Wide{0}), std::nextafter(wide, Wide(INFINITY))}) {
        numbers.push_back(x);
        numbers.push_back(-x);
      }
    }
  }
  return numbers;
}

TEST_P(Cast, RoundsOnceToNearestEven) {
  for (const DType narrow : {DType::float16, DType::bfloat16}) {
    const auto singles = numbers_around_middles<float>(format_of(narrow));
    const auto doubles = numbers_around_middles<double>(format_of(narrow));
    expect_cast(DType::float32, singles.data(), narrow, static_cast<std::int64_t>(singles.size()));
    expect_cast(DType::float64, doubles.data(), narrow, static_cast<std::int64_t>(doubles.size()));
  }
}

TEST_P(Cast, ExtremesOfDouble) {
  const double numbers[] = {0.0,
                            -0.0,
                            1e300,
                            -1e300,
                            1e-300,
                            -1e-300,
                            3.5e38,
                            3.4028235677973366e38,
                            INFINITY,
                            -INFINITY,
                            NAN,
                            1e-45,
                            7e-46,
                            65520,
                            65519.999999999,
                            2.98e-8,
                            2.9802322387695312e-8,
                            std::numeric_limits<double>::denorm_min(),
                            std::numeric_limits<double>::max()};
  for (const DType to : kFloats) {
    expect_cast(DType::float64, numbers, to, static_cast<std::int64_t>(std::size(numbers)));
  }
}

TEST_P(Cast, EveryPairCountAndAlignment) {
  std::mt19937_64 random(3);
  for (const DType from : kFloats) {
    for (const std::int64_t count : {0, 1, 7, 31, 64, 511, 513, 4097}) {
      Memory source(count * reference::bytes_of(from), 1 + count % 3);
      fill(from, source.data(), count, random);
      for (const DType to : kFloats) ASSERT_NO_FATAL_FAILURE(expect_cast(from, source.data(), to, count, 3));
    }
  }
}

TEST_P(Cast, InPlaceWhereTheSizeIsTheSame) {
  auto numbers = all_16_bit_numbers();
  const auto expected = expected_of(DType::float16, numbers.data(), DType::bfloat16, kAll);
  cast(DType::float16, numbers.data(), DType::bfloat16, numbers.data(), kAll);
  EXPECT_TRUE(same(DType::bfloat16, expected.data(), numbers.data(), kAll));
}

TEST(CastContractDeathTest, IntegersAbort) {
  std::int32_t x = 1;
  EXPECT_DEATH(cast(DType::int32, &x, DType::float32, &x, 1), "is_float");
}

}  // namespace
}  // namespace kolo::kernels
