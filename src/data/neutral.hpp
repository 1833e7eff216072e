// SPDX-License-Identifier: Apache-2.0
//
// What a rank that contributes nothing to a reduction gives all the same, so that the others' result is to the bit what
// it would be without that rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include <kolo/types.hpp>

namespace kolo::data {

/// Fills memory with elements that, times `prescale`, are neutral for `op`: -0.0 for a sum of floats, for +0.0 would
/// make +0.0 of a sum of -0.0. Of a product prescale must be 1: nothing times it need be exactly 1.
void fill_neutral(DType dtype, ReduceOp op, double prescale, std::byte* memory, std::int64_t elements);

}  // namespace kolo::data
