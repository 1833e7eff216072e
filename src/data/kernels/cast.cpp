// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include <hwy/base.h>

#include "data/kernels/copy.hpp"
#include "data/kernels/reduction.hpp"
#include "data/kernels/stream.hpp"

namespace kolo::kernels {
namespace {

/// float64 meets the 16-bit types by way of float32, in pieces that stay in the cache.
constexpr std::int64_t kPiece = 512;

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

/// Rounds toward zero and sets the last bit if anything was lost ("round to odd"): the lost digits then still decide
/// when the result is rounded again to fewer digits, as they would not after rounding to nearest twice.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || std::isnan(value)) return nearest;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &nearest, sizeof bits);
  if (std::fabs(back) > std::fabs(value)) --bits;
  bits |= 1U;
  float odd = 0;
  std::memcpy(&odd, &bits, sizeof odd);
  return odd;
}

void cast_singles(DType from, const void* source, DType to, void* destination, std::int64_t count) {
  if (from == to) return copy(destination, source, count * bytes_of(from));
  cast_floats(from, to, {&source, 1, &destination, 1, count});
}

void cast_from_double(const unsigned char* source, DType to, unsigned char* destination, std::int64_t count,
                      double factor) {
  float singles[kPiece];
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    for (std::int64_t k = 0; k < n; ++k) {
      double value = 0;
      std::memcpy(&value, source + (i + k) * 8, sizeof value);
      value *= factor;
      singles[k] = to == DType::float32 ? static_cast<float>(value) : round_to_odd(value);
    }
    cast_singles(DType::float32, singles, to, destination + i * bytes_of(to), n);
  }
}

void cast_to_double(DType from, const unsigned char* source, unsigned char* destination, std::int64_t count) {
  float singles[kPiece];
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    cast_singles(from, source + i * bytes_of(from), DType::float32, singles, n);
    for (std::int64_t k = 0; k < n; ++k) {
      const double value = singles[k];
      std::memcpy(destination + (i + k) * 8, &value, sizeof value);
    }
  }
}

}  // namespace

void cast(DType from, const void* source, DType to, void* destination, std::int64_t count) {
  HWY_ASSERT(is_floating_point(from) && is_floating_point(to) && count >= 0);
  if (count == 0) return;
  if (from == to) {
    if (source != destination) copy(destination, source, count * bytes_of(from));
  } else if (from == DType::float64) {
    cast_from_double(static_cast<const unsigned char*>(source), to, static_cast<unsigned char*>(destination), count, 1);
  } else if (to == DType::float64) {
    cast_to_double(from, static_cast<const unsigned char*>(source), static_cast<unsigned char*>(destination), count);
  } else {
    cast_floats(from, to, {&source, 1, &destination, 1, count});
  }
}

void scale_and_cast(DType from, const void* source, DType to, void* destination, std::int64_t count, double factor) {
  HWY_ASSERT(is_floating_point(from) && is_floating_point(to) && from != to && to != DType::float64 && count >= 0);
  if (count == 0) return;
  if (from == DType::float64) {
    cast_from_double(static_cast<const unsigned char*>(source), to, static_cast<unsigned char*>(destination), count,
                     factor);
  } else {
    cast_floats(from, to, {&source, 1, &destination, 1, count}, static_cast<float>(factor));
  }
}

}  // namespace kolo::kernels
