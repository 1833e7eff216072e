// SPDX-License-Identifier: Apache-2.0
//
// What the pack and unpack kernels work from: a table of chunks, as plain numbers that host and device read alike.
//
// A batch's tensors lie in a fusion buffer one behind another, each at a multiple of 16 bytes, the same on
// every rank. The host cuts them into chunks of at most kChunkBytes, so that every block has as much to do whatever the
// sizes of the tensors. One table serves both ways, and every buffer, because it holds offsets into the buffer: it is
// copied to the device once and used again as long as the same tensors come in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::cuda {

inline constexpr std::size_t kChunkBytes = 32 << 10;
/// Tensors begin at multiples of this in a buffer; what is between them is zeroed by the pack.
inline constexpr std::size_t kBufferAlignment = 16;

/// What an element is, where that matters: when it is scaled, made 0 or 1, or held in a buffer as another type.
enum class Element : std::uint8_t { plain, boolean, float16, bfloat16, float32, float64 };

struct Chunk {
  const std::byte* input;  ///< the caller's; null: the pack fills the buffer with `neutral`
  std::byte* output;       ///< the caller's; may be the input
  std::uint64_t offset;    ///< in the buffer; kNoOffset: not packed, reduced where it lies
  std::uint64_t neutral;   ///< as many elements of the buffer's type as 8 bytes hold
  double prescale;
  double divisor;
  double postscale;
  std::uint32_t bytes;            ///< of the caller's
  std::uint32_t bytes_in_buffer;  ///< fewer where the buffer holds another type
  Element element;
  Element in_buffer;  ///< `element`, or, of float32 and float64, float16 or bfloat16: cast by the pack and the unpack
  bool ends;          ///< the last chunk of its tensor: the pack zeroes up to the next multiple of kBufferAlignment
  bool takes_part_in_pack;
  bool takes_part_in_unpack;
};
inline constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

enum class Direction : std::uint8_t {
  /// Input to buffer, times prescale, then rounded to the buffer's type.
  pack,
  /// Buffer (or, of what is not packed, output) to output, divided by divisor, times postscale, in the buffer's type.
  unpack,
};

/// One launch.
struct Move {
  const Chunk* chunks;  ///< memory of the device
  std::uint32_t count;
  Direction direction;
  std::byte* buffer;  ///< memory of the device
};

}  // namespace kolo::cuda
