// SPDX-License-Identifier: Apache-2.0
//
// The reduction of a gradient that travels in blocks of 8 bits (the blocks below). Each rank sends every other its
// piece of the gradient, encoded; sums the pieces that it gets; and, if all ranks are to have all of it, encodes the
// sum and gathers. It is no wire format of collectives: a sum of encoded numbers must be encoded anew, and what both
// encodings lose must be kept for the next step (error feedback: Seide and others, "1-Bit Stochastic Gradient Descent",
// 2014), which only the optimizer can.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kolo/call.hpp>
#include <kolo/context.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/types.hpp>

namespace kolo::optimizer {

/// Numbers as integers of 8 bits in blocks: `kBlock` elements share a scale, a float32. The scales stand first, then a
/// byte for each element: -127 to 127 times the scale, which is the largest magnitude of the block divided by 127.
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

class CompressedGradient {
 public:
  /// Of a gradient of this type and shape. `gathers`: every rank gets all of it. Reserves the names `name` and, with
  /// "(sum)" and "(lost)" behind it, two more.
  CompressedGradient(const Group& group, const std::string& name, const TensorView& gradient, bool gathers,
                     const DistributedOptimizerOptions& options, int priority);

  /// Encodes the gradient and starts to exchange it.
  Handle start(const TensorView& gradient);
  /// After that: the sum of all ranks' pieces.
  void sum(const TensorView& piece);
  /// After that: encodes the piece, `divisor` of which are a sum, and starts to gather it; and after that, all of it.
  Handle start_gather(const TensorView& piece, double divisor);
  void finish(const TensorView& gradient) const;

  /// Of this rank's piece: what the encodings of all ranks have lost of the sum. Collective. A copy, until the next
  /// call of this or of `lost_to_load`.
  ConstTensorView lost();
  /// Where a load writes that, and, once it has: what was lost is this.
  TensorView lost_to_load();
  void load_lost();

 private:
  struct Part {
    std::int64_t elements, first, at;  // how many, from which one on; and where they lie, encoded
  };
  float* begin_copy();
  [[nodiscard]] std::byte* outgoing(const Part& part) { return bytes_of(outgoing_) + part.at; }
  static std::byte* bytes_of(Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }
  float* lost_here() { return static_cast<float*>(lost_here_.data()); }

  const Group group_;
  const std::string name_;
  const std::optional<std::chrono::nanoseconds> timeout_;
  std::vector<Part> parts_;  // by rank
  const std::size_t own_;
  Tensor lost_here_;   // by this rank's first encoding, of all elements
  Tensor lost_piece_;  // of the sum, of this rank's piece
  Tensor copied_;      // for a checkpoint: of this rank's piece
  Tensor outgoing_, incoming_;
  Prepared exchange_, gather_;
};

}  // namespace kolo::optimizer
