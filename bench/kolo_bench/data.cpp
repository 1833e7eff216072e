// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace kolo_bench {
namespace {

using kolo::DType;
using kolo::ReduceOp;

/// Calls `use` with a value of the C++ type that holds this dtype.
template <class Use>
auto with_type(DType dtype, Use use) {
  switch (dtype) {
  case DType::boolean:
    return use(bool{});
  case DType::int8:
    return use(std::int8_t{});
  case DType::int16:
    return use(std::int16_t{});
  case DType::int32:
    return use(std::int32_t{});
  case DType::int64:
    return use(std::int64_t{});
  case DType::uint8:
    return use(std::uint8_t{});
  case DType::uint16:
    return use(std::uint16_t{});
  case DType::uint32:
    return use(std::uint32_t{});
  case DType::uint64:
    return use(std::uint64_t{});
  case DType::float16:
    return use(kolo::Float16{});
  case DType::bfloat16:
    return use(kolo::BFloat16{});
  case DType::float32:
    return use(float{});
  case DType::float64:
    return use(double{});
  }
  throw std::logic_error("no such dtype");
}

/// The bits of a float without the lowest `dropped` ones of its mantissa, rounded to nearest even.
std::uint32_t rounded_bits(float value, int dropped) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t half = (std::uint32_t{1} << (dropped - 1)) - 1;
  return (bits + half + ((bits >> dropped) & 1)) >> dropped;
}

/// Enough for our data: zero and the normal numbers of the type, not negative.
std::uint16_t to_bfloat16(float value) { return static_cast<std::uint16_t>(rounded_bits(value, 16)); }
std::uint16_t to_float16(float value) {
  constexpr std::uint32_t kBiasDifference = (127 - 15) << 10;
  return value == 0 ? std::uint16_t{0} : static_cast<std::uint16_t>(rounded_bits(value, 13) - kBiasDifference);
}

void store(double value, bool& out) { out = (static_cast<int>(value) & 1) != 0; }
void store(double value, kolo::Float16& out) { out.bits = to_float16(static_cast<float>(value)); }
void store(double value, kolo::BFloat16& out) { out.bits = to_bfloat16(static_cast<float>(value)); }
template <class T>
void store(double value, T& out) {
  out = static_cast<T>(value);
}

std::int64_t period(ReduceOp op, int ranks) { return op == ReduceOp::product ? 8 * std::int64_t{ranks} : 8; }

double input(ReduceOp op, std::int64_t i, int rank, int ranks) {
  if (op == ReduceOp::product) return i % ranks == rank ? 2 : 1;
  return static_cast<double>((3 * i + 5 * rank) % 8);
}

double reduced(ReduceOp op, std::int64_t i, int ranks, bool boolean) {
  double result = input(op, i, 0, ranks);
  const auto odd = [](double x) { return static_cast<double>(static_cast<int>(x) & 1); };
  if (boolean) result = odd(result);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = boolean ? odd(input(op, i, rank, ranks)) : input(op, i, rank, ranks);
    if (boolean) {
      const bool is_or = op == ReduceOp::sum || op == ReduceOp::max;
      result = is_or ? std::max(result, next) : std::min(result, next);
    } else {
      switch (op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result += next;
        break;
      case ReduceOp::min:
        result = std::min(result, next);
        break;
      case ReduceOp::max:
        result = std::max(result, next);
        break;
      case ReduceOp::product:
        result *= next;
        break;
      }
    }
  }
  return op == ReduceOp::average ? result / ranks : result;
}

/// Writes one period of elements, then that period again and again.
template <class Value>
void write_periodic(Buffer& buffer, std::int64_t length, Value value) {
  with_type(buffer.dtype(), [&](auto zero) {
    auto* out = static_cast<decltype(zero)*>(buffer.data());
    for (std::int64_t i = 0; i < std::min(length, buffer.elements()); ++i) store(value(i), out[i]);
    for (std::int64_t i = length; i < buffer.elements(); ++i) out[i] = out[i - length];
  });
}

/// Elements that differ from the period.
template <class Value>
std::int64_t count_wrong(Buffer& buffer, std::int64_t first, std::int64_t count, std::int64_t length, Value value) {
  Buffer wanted(buffer.dtype(), length);
  write_periodic(wanted, length, value);
  const std::size_t size = kolo::size_of(buffer.dtype());
  const auto* got = static_cast<const std::byte*>(buffer.data()) + static_cast<std::size_t>(first) * size;
  const auto* want = static_cast<const std::byte*>(wanted.data());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(got + at, want + static_cast<std::size_t>(i % length) * size, size) != 0) ++wrong;
  }
  return wrong;
}

}  // namespace

void Buffer::poison() { std::memset(data(), 0xA5, static_cast<std::size_t>(bytes())); }

void fill_input(Buffer& buffer, ReduceOp op, int rank, int ranks, std::int64_t first) {
  write_periodic(buffer, period(op, ranks), [=](std::int64_t i) { return input(op, first + i, rank, ranks); });
}

std::int64_t count_wrong_reduction(Buffer& buffer, ReduceOp op, int ranks) {
  return count_wrong_reduction(buffer, op, ranks, 0, buffer.elements(), 0);
}

std::int64_t count_wrong_reduction(Buffer& buffer, ReduceOp op, int ranks, std::int64_t at, std::int64_t count,
                                   std::int64_t first) {
  const bool boolean = buffer.dtype() == DType::boolean;
  return count_wrong(buffer, at, count, period(op, ranks),
                     [=](std::int64_t i) { return reduced(op, first + i, ranks, boolean); });
}

void fill_part(Buffer& buffer, int rank, std::int64_t first, std::int64_t count) {
  Buffer part(buffer.dtype(), count);
  fill_input(part, ReduceOp::sum, rank, 1);
  const auto offset = static_cast<std::size_t>(first) * kolo::size_of(buffer.dtype());
  std::memcpy(static_cast<std::byte*>(buffer.data()) + offset, part.data(), static_cast<std::size_t>(part.bytes()));
}

std::int64_t count_wrong_copy(Buffer& buffer, int rank, std::int64_t first, std::int64_t count) {
  return count_wrong(buffer, first, count, period(ReduceOp::sum, 1),
                     [=](std::int64_t i) { return input(ReduceOp::sum, i, rank, 1); });
}

}  // namespace kolo_bench
