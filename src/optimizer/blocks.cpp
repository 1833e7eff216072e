// SPDX-License-Identifier: Apache-2.0
#include "optimizer/blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "optimizer/elements.hpp"

namespace kolo::optimizer {
namespace {

constexpr float kMost = 127;
// Added and taken away, it rounds a float32 of less than 2^22 to the nearest integer, in vector registers, too.
constexpr float kRounder = 12582912.0F;

/// `x` becomes what is lost. Returns the scale.
float encode_block(float* x, std::int64_t count, std::int8_t* to) {
  float largest = 0;
  float test = 0;  // stays zero, or becomes no number
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    test += x[i] * 0.0F;
  }
  const float scale = largest / kMost;
  const float inverse = scale >= std::numeric_limits<float>::min() ? 1 / scale : 0;  // below: nothing but lost
  if (test != 0 || inverse == 0) {
    std::fill_n(to, count, std::int8_t{0});
    if (test == 0) return 0;
    std::fill_n(x, count, 0.0F);
    return std::numeric_limits<float>::quiet_NaN();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float rounded = (x[i] * inverse + kRounder) - kRounder;
    to[i] = static_cast<std::int8_t>(rounded);
    x[i] -= rounded * scale;
  }
  return scale;
}

}  // namespace

void encode(const TensorView& view, float* lost, std::byte* to) {
  with_type(view, [&](auto zero) {
    const auto from = elements<decltype(zero)>(view);
    const auto count = static_cast<std::int64_t>(from.size());
    std::byte* scales = to;
    auto* const integers = reinterpret_cast<std::int8_t*>(to + (encoded_bytes(count) - count));
    for (std::int64_t begin = 0; begin < count; begin += kBlock, scales += sizeof(float)) {
      const std::int64_t size = std::min(kBlock, count - begin);
      for (std::int64_t i = begin; i < begin + size; ++i) {
        lost[i] += static_cast<float>(from[static_cast<std::size_t>(i)]);
      }
      const float scale = encode_block(lost + begin, size, integers + begin);
      std::memcpy(scales, &scale, sizeof scale);
    }
  });
}

void decode(const std::byte* from, const TensorView& view, Decoding how) {
  with_type(view, [&](auto zero) {
    using T = decltype(zero);
    const auto to = elements<T>(view);
    const auto count = static_cast<std::int64_t>(to.size());
    const auto* const integers = reinterpret_cast<const std::int8_t*>(from + (encoded_bytes(count) - count));
    for (std::int64_t begin = 0; begin < count; begin += kBlock, from += sizeof(float)) {
      float scale = 0;
      std::memcpy(&scale, from, sizeof scale);
      const std::int64_t end = std::min(count, begin + kBlock);
      for (std::int64_t i = begin; i < end; ++i) {
        T& element = to[static_cast<std::size_t>(i)];
        const T decoded = static_cast<T>(scale * static_cast<float>(integers[i]));
        element = how == Decoding::adds ? element + decoded : decoded;
      }
    }
  });
}

}  // namespace kolo::optimizer
