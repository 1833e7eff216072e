// SPDX-License-Identifier: Apache-2.0
//
// Numbers whose reductions are exact in every element type, over up to 8 ranks; and what the reductions are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <kolo/types.hpp>

#include "base/half.hpp"

namespace kolo::testing {

inline bool is_float(DType dtype) { return is_floating_point(dtype); }
inline bool is_unsigned(DType dtype) {
  return dtype == DType::uint8 || dtype == DType::uint16 || dtype == DType::uint32 || dtype == DType::uint64;
}

/// Writes an integer as an element; integers wrap around.
inline void store(DType dtype, std::byte* to, std::int64_t value) {
  const auto put = [to](auto element) { std::memcpy(to, &element, sizeof element); };
  switch (dtype) {
  case DType::boolean:
    return put(static_cast<std::uint8_t>(value != 0));
  case DType::float16:
    return put(base::to_float16(static_cast<float>(value)));
  case DType::bfloat16:
    return put(base::to_bfloat16(static_cast<float>(value)));
  case DType::float32:
    return put(static_cast<float>(value));
  case DType::float64:
    return put(static_cast<double>(value));
  default:
    std::memcpy(to, &value, size_of(dtype));  // little-endian: the low bytes
  }
}

inline constexpr ReduceOp kReduceOps[] = {ReduceOp::sum,     ReduceOp::average, ReduceOp::min,    ReduceOp::max,
                                          ReduceOp::product, ReduceOp::bit_and, ReduceOp::bit_or, ReduceOp::bit_xor};
inline bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}
inline bool is_defined(DType dtype, ReduceOp op) {
  return op == ReduceOp::average ? is_float(dtype) : !is_bitwise(op) || !is_float(dtype);
}

/// Element i of rank r: small, and for averages a multiple of the number of ranks.
inline std::int64_t value_of(DType dtype, ReduceOp op, std::int64_t i, int rank, int ranks) {
  if (dtype == DType::boolean) return (i + rank) % 3 == 0;
  if (op == ReduceOp::product) return (i + rank) % 3 == 0 ? 2 : 1;
  const std::int64_t value = (i * 7 + rank * 3) % 11 - (is_unsigned(dtype) ? 0 : 5);
  return op == ReduceOp::average ? value * ranks : value;
}

inline std::int64_t reduced_value(DType dtype, ReduceOp op, std::int64_t i, int ranks) {
  std::int64_t result = value_of(dtype, op, i, 0, ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t value = value_of(dtype, op, i, rank, ranks);
    const bool all = op == ReduceOp::product || op == ReduceOp::min || op == ReduceOp::bit_and;
    if (op == ReduceOp::bit_xor) {
      result ^= value;
    } else if (dtype == DType::boolean || is_bitwise(op)) {
      result = all ? result & value : result | value;
    } else if (op == ReduceOp::min) {
      result = std::min(result, value);
    } else if (op == ReduceOp::max) {
      result = std::max(result, value);
    } else {
      result = op == ReduceOp::product ? result * value : result + value;
    }
  }
  return op == ReduceOp::average ? result / ranks : result;
}

/// What value_of and reduced_value say of an element they say of the one so much further on, too.
constexpr std::int64_t kPeriod = 33;

/// Writes value(0), value(1) and so on as elements, where `value` repeats after `period`. Only so many are computed:
/// tests with long tensors would do little else.
template <class Value>
void store_repeating(DType dtype, std::byte* to, std::int64_t count, Value value, std::int64_t period = kPeriod) {
  const std::size_t width = size_of(dtype);
  const std::size_t all = static_cast<std::size_t>(count) * width;
  const std::int64_t computed = std::min(count, period);
  for (std::int64_t i = 0; i < computed; ++i) store(dtype, to + static_cast<std::size_t>(i) * width, value(i));
  for (std::size_t there = static_cast<std::size_t>(computed) * width; there < all; there *= 2) {
    std::memcpy(to + there, to, std::min(there, all - there));
  }
}

}  // namespace kolo::testing
