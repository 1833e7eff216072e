// SPDX-License-Identifier: Apache-2.0
//
// What the library asks of reductions beyond the public header.
#pragma once

#include <kolo/types.hpp>

namespace kolo::core {

/// What a caller or another rank gives as an operation is compared with this one: any number may come.
inline constexpr ReduceOp kLastReduceOp = ReduceOp::bit_xor;

constexpr bool is_bitwise(ReduceOp op) noexcept {
  return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

}  // namespace kolo::core
