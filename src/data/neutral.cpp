// SPDX-License-Identifier: Apache-2.0
#include "data/neutral.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/half.hpp"

namespace kolo::data {

namespace {

/// What times `prescale` is +0.0, where that is 0 itself, or else +infinity: neutral for min; negative, for max. 0
/// times infinity would be no number, and inputs times 0 are nothing but zeros.
double largest_before(double prescale) noexcept {
  const double largest = prescale == 0 ? 1 : std::numeric_limits<double>::infinity();
  return std::signbit(prescale) ? -largest : largest;
}

/// `prescale`: as it is in the type that scales.
double neutral_float(ReduceOp op, double prescale) noexcept {
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::average:
    return std::signbit(prescale) ? 0.0 : -0.0;
  case ReduceOp::min:
    return largest_before(prescale);
  case ReduceOp::max:
    return -largest_before(prescale);
  case ReduceOp::product:
    KOLO_CHECK(prescale == 1) << "a product scaled by " << prescale;
    return 1;
  case ReduceOp::bit_and:
  case ReduceOp::bit_or:
  case ReduceOp::bit_xor:
    break;
  }
  KOLO_UNREACHABLE();
}

template <class Integer>
Integer neutral_integer(ReduceOp op) noexcept {
  switch (op) {
  case ReduceOp::sum:
  case ReduceOp::average:
  case ReduceOp::bit_or:
  case ReduceOp::bit_xor:
    return 0;
  case ReduceOp::bit_and:
    return static_cast<Integer>(-1);
  case ReduceOp::min:
    return std::numeric_limits<Integer>::max();
  case ReduceOp::max:
    return std::numeric_limits<Integer>::lowest();
  case ReduceOp::product:
    return 1;
  }
  KOLO_UNREACHABLE();
}

template <class Element>
void fill(std::byte* memory, std::int64_t elements, Element value) noexcept {
  std::fill_n(reinterpret_cast<Element*>(memory), elements, value);
}

}  // namespace

void fill_neutral(DType dtype, ReduceOp op, double prescale, std::byte* memory, std::int64_t elements) {
  const auto narrow = static_cast<float>(prescale);  // all floats but float64 are scaled as float32
  switch (dtype) {
  case DType::boolean:  // sum and max are "or", product and min are "and"
    return fill<std::uint8_t>(memory, elements,
                              op == ReduceOp::min || op == ReduceOp::product || op == ReduceOp::bit_and ? 1 : 0);
  case DType::int8:
    return fill(memory, elements, neutral_integer<std::int8_t>(op));
  case DType::int16:
    return fill(memory, elements, neutral_integer<std::int16_t>(op));
  case DType::int32:
    return fill(memory, elements, neutral_integer<std::int32_t>(op));
  case DType::int64:
    return fill(memory, elements, neutral_integer<std::int64_t>(op));
  case DType::uint8:
    return fill(memory, elements, neutral_integer<std::uint8_t>(op));
  case DType::uint16:
    return fill(memory, elements, neutral_integer<std::uint16_t>(op));
  case DType::uint32:
    return fill(memory, elements, neutral_integer<std::uint32_t>(op));
  case DType::uint64:
    return fill(memory, elements, neutral_integer<std::uint64_t>(op));
  case DType::float16:
    return fill(memory, elements, base::to_float16(static_cast<float>(neutral_float(op, narrow))).bits);
  case DType::bfloat16:
    return fill(memory, elements, base::to_bfloat16(static_cast<float>(neutral_float(op, narrow))).bits);
  case DType::float32:
    return fill(memory, elements, static_cast<float>(neutral_float(op, narrow)));
  case DType::float64:
    return fill(memory, elements, neutral_float(op, prescale));
  }
  KOLO_UNREACHABLE();
}

}  // namespace kolo::data
