// SPDX-License-Identifier: Apache-2.0
//
// Arrays at odd addresses with poisoned surroundings, random elements with many special ones, exact comparison, and
// tests that run once for each instruction set this machine has.
#ifndef KOLO_TESTS_KERNELS_SUPPORT_HPP
#define KOLO_TESTS_KERNELS_SUPPORT_HPP

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "data/kernels/targets.hpp"

#include <hwy/highway.h>

#include "data/kernels/reduction.hpp"
#include "reference.hpp"

namespace kolo::kernels {

inline constexpr unsigned char kPoison = 0xA5;

/// `bytes` bytes that begin `offset` bytes after an aligned address.
class Memory {
 public:
  Memory(std::int64_t bytes, std::int64_t offset)
      : bytes_(bytes), begin_(0), storage_(static_cast<std::size_t>(bytes) + 3 * kGuard, kPoison) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + kGuard;
    begin_ = kGuard + (kAlignment - address % kAlignment) % kAlignment + static_cast<std::size_t>(offset);
  }

  [[nodiscard]] unsigned char* data() { return storage_.data() + begin_; }
  [[nodiscard]] const unsigned char* data() const { return storage_.data() + begin_; }

  /// True when every byte around the array still holds the poison.
  [[nodiscard]] bool surroundings_untouched() const {
    const std::size_t end = begin_ + static_cast<std::size_t>(bytes_);
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      if ((i < begin_ || i >= end) && storage_[i] != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kGuard = 160;

  std::int64_t bytes_;
  std::size_t begin_;
  std::vector<unsigned char> storage_;
};

/// Random elements; of the floating-point ones every fourth is special: zeros, infinities, a NaN, subnormal numbers,
/// the largest, halves of the last digit.
inline void fill(DType dtype, void* array, std::int64_t count, std::mt19937_64& random) {
  static const std::vector<double> specials = {
      0.0,       -0.0,       INFINITY, -INFINITY, NAN,    5.96e-8, -5.96e-8,   6.1e-5,     65504, -65504, 65519, 65520,
      3.3895e38, -3.3895e38, 1e-45,    -9.2e-41,  1e-320, 1.7e308, 1.00390625, 1.01171875, 2049,  2051,   -1,    1};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    const bool special = bits % 4 == 0;
    const double number =
        special ? specials[(bits >> 8) % specials.size()]
                : std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)), static_cast<int>(bits % 12) - 66);
    switch (dtype) {
    case DType::boolean:
      reference::write<std::uint8_t>(array, i, (bits & 1) == 0 ? 0 : bits % 3 == 0 ? 255 : 1);
      break;
    case DType::float16:
      reference::write(array, i, reference::encode(reference::kFloat16, number));
      break;
    case DType::bfloat16:
      reference::write(array, i, reference::encode(reference::kBFloat16, number));
      break;
    case DType::float32:
      reference::write(array, i, static_cast<float>(number));
      break;
    case DType::float64:
      reference::write(array, i, number);
      break;
    default:
      std::memcpy(static_cast<char*>(array) + i * reference::bytes_of(dtype), &bits,
                  static_cast<std::size_t>(reference::bytes_of(dtype)));
    }
  }
}

/// Equal in every bit, but that any NaN equals any other.
inline testing::AssertionResult same(DType dtype, const void* expected, const void* actual, std::int64_t count) {
  const std::int64_t bytes = reference::bytes_of(dtype);
  if (count == 0 || std::memcmp(expected, actual, static_cast<std::size_t>(count * bytes)) == 0) {
    return testing::AssertionSuccess();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* a = static_cast<const char*>(expected) + i * bytes;
    const auto* b = static_cast<const char*>(actual) + i * bytes;
    if (std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0) continue;
    const double wanted = reference::value_of(dtype, expected, i);
    const double got = reference::value_of(dtype, actual, i);
    if (std::isnan(wanted) && std::isnan(got)) continue;
    return testing::AssertionFailure() << "element " << i << " of " << count << ": expected " << wanted << ", got "
                                       << got;
  }
  return testing::AssertionSuccess();
}

/// Runs each test with one instruction set after the other; the kernels' dispatch is put back afterwards.
class OnEveryTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  OnEveryTarget() { choose(GetParam()); }
  ~OnEveryTarget() override { choose(0); }

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string target_name(const ::testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

#define KOLO_ON_EVERY_TARGET(Fixture)                                                                                  \
  INSTANTIATE_TEST_SUITE_P(Targets, Fixture, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),                 \
                           kolo::kernels::target_name)

}  // namespace kolo::kernels

#endif  // KOLO_TESTS_KERNELS_SUPPORT_HPP
