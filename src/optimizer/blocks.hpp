// SPDX-License-Identifier: Apache-2.0
//
// Numbers as integers of 8 bits in blocks: `kBlock` elements share a scale, a float32. The scales stand first, then a
// byte for each element: -127 to 127 times the scale, which is the largest magnitude of the block divided by 127.
#pragma once

#include <cstddef>
#include <cstdint>

#include <kolo/types.hpp>

namespace kolo::optimizer {

inline constexpr std::int64_t kBlock = 256;

/// The bytes that so many elements take.
constexpr std::int64_t encoded_bytes(std::int64_t elements) noexcept {
  return (elements + kBlock - 1) / kBlock * std::int64_t{sizeof(float)} + elements;
}

/// Encodes the elements plus what `lost` says, and writes there what the encoding has lost. Of a block with an element
/// that is not finite nothing is lost, and all of it decodes to no number. The view is float32 or float64.
void encode(const TensorView& elements, float* lost, std::byte* to);

/// Adds the decoded elements to those of the view, or writes them there.
enum class Decoding { adds, replaces };
void decode(const std::byte* from, const TensorView& to, Decoding how);

}  // namespace kolo::optimizer
