// SPDX-License-Identifier: Apache-2.0
//
// Reductions: what only the library itself needs.
#pragma once

#include <kolo/types.hpp>

namespace kolo::core {

/// A caller or another rank may give any number as an operation; it is checked against this one.
inline constexpr ReduceOp kLastReduceOp = ReduceOp::bit_xor;

constexpr bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

}  // namespace kolo::core
