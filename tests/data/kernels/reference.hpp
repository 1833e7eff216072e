// SPDX-License-Identifier: Apache-2.0
//
// What the kernels must compute, written a second time: one element after another, 16-bit floats through exact double
// arithmetic instead of bit tricks, every rounding forced to memory so that no compiler fuses it.
#ifndef KOLO_TESTS_KERNELS_REFERENCE_HPP
#define KOLO_TESTS_KERNELS_REFERENCE_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "data/kernels/reduction.hpp"

namespace kolo::kernels::reference {

/// A 16-bit floating-point format: one sign bit, then exponent, then mantissa.
struct Narrow {
  int mantissa_bits;
  int exponent_bits;
  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
inline constexpr Narrow kFloat16{10, 5};
inline constexpr Narrow kBFloat16{7, 8};

inline double decode(Narrow format, std::uint16_t bits) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> format.mantissa_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - format.bias() - format.mantissa_bits);
}

/// Rounds to nearest, ties to even, once.
inline std::uint16_t encode(Narrow format, double value) {
  const int infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | (1 << (format.mantissa_bits - 1)));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const int smallest = 1 - format.bias();
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(magnitude), smallest);
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // A subnormal number has as many steps as its mantissa says; each further binade begins 2^mantissa_bits steps later,
  // also when rounding reached it.
  const double bits = std::ldexp(exponent - smallest, format.mantissa_bits) + steps;
  return static_cast<std::uint16_t>(sign | static_cast<int>(std::min(bits, static_cast<double>(infinity))));
}

/// How an element of each type is read, computed with and written; `Accumulator` is what partial results are kept in.
template <DType dtype>
struct Element;

template <class T, class AccumulatorType = T>
struct ElementOf {
  using Storage = T;
  using Accumulator = AccumulatorType;
  static Accumulator load(Storage stored) { return stored; }
  static Storage store(Accumulator value) { return value; }
};
template <>
struct Element<DType::int8> : ElementOf<std::int8_t> {};
template <>
struct Element<DType::int16> : ElementOf<std::int16_t> {};
template <>
struct Element<DType::int32> : ElementOf<std::int32_t> {};
template <>
struct Element<DType::int64> : ElementOf<std::int64_t> {};
template <>
struct Element<DType::uint8> : ElementOf<std::uint8_t> {};
template <>
struct Element<DType::uint16> : ElementOf<std::uint16_t> {};
template <>
struct Element<DType::uint32> : ElementOf<std::uint32_t> {};
template <>
struct Element<DType::uint64> : ElementOf<std::uint64_t> {};
template <>
struct Element<DType::float32> : ElementOf<float> {};
template <>
struct Element<DType::float64> : ElementOf<double> {};
template <>
struct Element<DType::boolean> {
  using Storage = std::uint8_t;
  using Accumulator = bool;
  static bool load(Storage stored) { return stored != 0; }
  static Storage store(bool value) { return value ? 1 : 0; }
};
template <>
struct Element<DType::float16> {
  using Storage = std::uint16_t;
  using Accumulator = float;
  static float load(Storage stored) { return static_cast<float>(decode(kFloat16, stored)); }
  static Storage store(float value) { return encode(kFloat16, value); }
};
template <>
struct Element<DType::bfloat16> {
  using Storage = std::uint16_t;
  using Accumulator = float;
  static float load(Storage stored) { return static_cast<float>(decode(kBFloat16, stored)); }
  static Storage store(float value) { return encode(kBFloat16, value); }
};

inline bool apply(ReduceOp op, bool a, bool b) {
  if (op == ReduceOp::bit_xor) return a != b;
  return op == ReduceOp::min || op == ReduceOp::product || op == ReduceOp::bit_and ? a && b : a || b;
}

template <class T>
T apply(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    volatile T result = 0;
    switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      result = a + b;
      break;
    case ReduceOp::product:
      result = a * b;
      break;
    case ReduceOp::min:
      result = std::isnan(a) || std::isnan(b) ? a + b : a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
      break;
    case ReduceOp::max:
      result = std::isnan(a) || std::isnan(b) ? a + b : a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
      break;
    default:  // bits
      break;
    }
    return result;
  } else {
    // 64 unsigned bits hold the low bits of every sum and product, whatever the sign.
    const auto wide_a = static_cast<std::uint64_t>(a);
    const auto wide_b = static_cast<std::uint64_t>(b);
    switch (op) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return static_cast<T>(wide_a * wide_b);
    case ReduceOp::bit_and:
      return static_cast<T>(wide_a & wide_b);
    case ReduceOp::bit_or:
      return static_cast<T>(wide_a | wide_b);
    case ReduceOp::bit_xor:
      return static_cast<T>(wide_a ^ wide_b);
    default:
      return static_cast<T>(wide_a + wide_b);
    }
  }
}

template <class T>
T scaled(T value, double factor) {
  if constexpr (std::is_floating_point_v<T>) {
    volatile T product = value * static_cast<T>(factor);
    return product;
  } else {
    return value;
  }
}

template <class T>
T divided(T value, std::int64_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    volatile T quotient = value / static_cast<T>(divisor);
    return quotient;
  } else {
    return value;
  }
}

template <class T>
T read(const void* array, std::int64_t i) {
  T value{};
  std::memcpy(&value, static_cast<const unsigned char*>(array) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void write(void* array, std::int64_t i, T value) {
  std::memcpy(static_cast<unsigned char*>(array) + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <DType dtype>
void reduce(const Reduction& reduction, const void* const* inputs, int n, void* output, std::int64_t count) {
  using E = Element<dtype>;
  const Scaling& scaling = reduction.scaling;
  for (std::int64_t i = 0; i < count; ++i) {
    auto result = scaled(E::load(read<typename E::Storage>(inputs[0], i)), scaling.prescale);
    for (int r = 1; r < n; ++r) {
      const auto next = scaled(E::load(read<typename E::Storage>(inputs[r], i)), scaling.prescale);
      result = apply(reduction.op, result, next);
    }
    write(output, i, E::store(scaled(divided(result, scaling.divisor), scaling.postscale)));
  }
}

/// Calls `visit.template operator()<dtype>()` with the type as a constant.
template <class Visitor>
void with_dtype(DType dtype, Visitor visit) {
  switch (dtype) {
  case DType::boolean:
    return visit.template operator()<DType::boolean>();
  case DType::int8:
    return visit.template operator()<DType::int8>();
  case DType::int16:
    return visit.template operator()<DType::int16>();
  case DType::int32:
    return visit.template operator()<DType::int32>();
  case DType::int64:
    return visit.template operator()<DType::int64>();
  case DType::uint8:
    return visit.template operator()<DType::uint8>();
  case DType::uint16:
    return visit.template operator()<DType::uint16>();
  case DType::uint32:
    return visit.template operator()<DType::uint32>();
  case DType::uint64:
    return visit.template operator()<DType::uint64>();
  case DType::float16:
    return visit.template operator()<DType::float16>();
  case DType::bfloat16:
    return visit.template operator()<DType::bfloat16>();
  case DType::float32:
    return visit.template operator()<DType::float32>();
  case DType::float64:
    return visit.template operator()<DType::float64>();
  }
}

inline void reduce(const Reduction& reduction, const void* const* inputs, int n, void* output, std::int64_t count) {
  with_dtype(reduction.dtype, [&]<DType dtype>() { reduce<dtype>(reduction, inputs, n, output, count); });
}

inline std::int64_t bytes_of(DType dtype) {
  std::int64_t bytes = 0;
  with_dtype(dtype, [&]<DType constant>() { bytes = sizeof(typename Element<constant>::Storage); });
  return bytes;
}

/// The element as a double, to tell what is a NaN and to print it.
inline double value_of(DType dtype, const void* array, std::int64_t i) {
  double value = 0;
  with_dtype(dtype, [&]<DType constant>() {
    using E = Element<constant>;
    value = static_cast<double>(E::load(read<typename E::Storage>(array, i)));
  });
  return value;
}

}  // namespace kolo::kernels::reference

#endif  // KOLO_TESTS_KERNELS_REFERENCE_HPP
