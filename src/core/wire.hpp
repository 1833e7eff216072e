// SPDX-License-Identifier: Apache-2.0
//
// The types as which elements are sent between ranks. The data plane converts them (data/cpu/wire_format.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include <kolo/types.hpp>

namespace kolo::core {

/// The number travels between ranks.
enum class Wire : std::uint8_t {
  own = 0,  ///< as the tensor's own type
  float16 = 1,
  bfloat16 = 2,
};
inline constexpr Wire kLastWire = Wire::bfloat16;

constexpr std::string_view to_string(Wire wire) noexcept {
  switch (wire) {
  case Wire::own:
    return "the tensor's own";
  case Wire::float16:
    return "float16";
  case Wire::bfloat16:
    return "bfloat16";
  }
  return "unknown";
}

/// The wire type of elements of this type, if `wire` is asked for: a type that is not wider is sent as it is.
constexpr Wire wire_of(DType dtype, Wire wire) noexcept {
  return dtype == DType::float32 || dtype == DType::float64 ? wire : Wire::own;
}

}  // namespace kolo::core
