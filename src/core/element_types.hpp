// SPDX-License-Identifier: Apache-2.0
//
// Element types, reductions, and as what elements are sent: what only the library itself needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include <kolo/types.hpp>

namespace kolo::core {

/// A caller or another rank may give any number as an element type; it is checked against this one.
inline constexpr DType kLastDType = static_cast<DType>(kDTypeCount - 1);

/// A caller or another rank may give any number as an operation; it is checked against this one.
inline constexpr ReduceOp kLastReduceOp = ReduceOp::bit_xor;

constexpr bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

/// The wire formats, one row each: as what elements are sent between ranks. Checks of arguments, negotiation and both
/// data planes read this table. The code that converts elements is in data/cpu/wire_format.cpp. The number travels
/// between ranks.
enum class Wire : std::uint8_t {
  own = 0,  ///< as the tensor's own type
  float16 = 1,
  bfloat16 = 2,
};

struct WireTraits {
  Wire wire;
  std::string_view name;
  std::optional<DType> type = {};  ///< what is sent, and what `send_as` names; none: elements of another kind
  DType tensors[2] = {};           ///< the types of tensors that can be sent so
  bool cpu_only = false;           ///< devices have no kernels for it
};

inline constexpr WireTraits kWires[] = {
    {.wire = Wire::own, .name = "the tensor's own"},
    {.wire = Wire::float16, .name = "float16", .type = DType::float16, .tensors = {DType::float32, DType::float64}},
    {.wire = Wire::bfloat16, .name = "bfloat16", .type = DType::bfloat16, .tensors = {DType::float32, DType::float64}},
};
inline constexpr std::size_t kWireCount = std::size(kWires);
inline constexpr Wire kLastWire = kWires[kWireCount - 1].wire;
static_assert(static_cast<std::size_t>(kLastWire) == kWireCount - 1, "kWires has one row a format, in their order");

constexpr const WireTraits& traits_of(Wire wire) noexcept { return kWires[static_cast<std::size_t>(wire)]; }
constexpr std::string_view to_string(Wire wire) noexcept { return traits_of(wire).name; }

/// How elements of this type are sent, if `wire` is asked for: a type that is not wider is sent as it is.
constexpr Wire wire_of(DType dtype, Wire wire) noexcept {
  const WireTraits& traits = traits_of(wire);
  return dtype == traits.tensors[0] || dtype == traits.tensors[1] ? wire : Wire::own;
}
/// The format that `send_as` names; `own`: there is no such format.
constexpr Wire wire_named(DType send_as) noexcept {
  for (const WireTraits& traits : kWires)
    if (traits.type == send_as) return traits.wire;
  return Wire::own;
}

}  // namespace kolo::core
