// SPDX-License-Identifier: Apache-2.0
//
// The rule by which tensors may share a batch, wherever one is put together (batches.hpp has the others).
#pragma once

#include <cstdint>
#include <optional>

#include "control/sequencer/tensor_table.hpp"
#include "core/signature.hpp"

namespace kolo::control {

/// Which tensors a batch under construction still takes: tensors of the first one's kind, if requests of that kind may
/// share a batch (core/collectives.hpp, `fuses` and `batches`), up to `threshold` bytes. A larger tensor, and any
/// tensor if the threshold is 0, is a batch by itself.
///
/// Where rows differ by rank, a signature has the bytes of a row, and the number of rows is not known here. Such a
/// batch is also bounded by the number of its tensors, which bounds the lengths that travel first, and the wait of
/// urgent tensors. On the CPU its members end one by one. On a device all end with the batch, so such a request is a
/// batch by itself.
class BatchSpace {
 public:
  /// The most tensors of a batch whose rows differ by rank. A single request may have more; it is then a batch by
  /// itself.
  static constexpr std::uint64_t kMostUnevenTensors = 64;

  explicit BatchSpace(std::int64_t threshold) : threshold_(threshold) {}
  [[nodiscard]] bool takes(const Tensor& tensor) const noexcept { return takes(*tensor.signature, tensor.bytes); }
  void add(const Tensor& tensor) noexcept { add(*tensor.signature, tensor.bytes); }
  /// `bytes`: the signature's.
  [[nodiscard]] bool takes(const core::Signature& signature, std::int64_t bytes) const noexcept;
  void add(const core::Signature& signature, std::int64_t bytes) noexcept;
  /// Adds as many of these as the batch takes, at least one and at most `most`. Returns how many.
  std::uint64_t add_alike(const core::Signature& signature, std::int64_t bytes, std::uint64_t most) noexcept;

 private:
  std::int64_t threshold_;
  std::int64_t bytes_ = 0;
  std::uint64_t uneven_tensors_ = 0;
  bool is_shared_ = true;                     ///< the batch may take more tensors
  std::optional<core::CollectiveKind> kind_;  ///< none while empty
};

}  // namespace kolo::control
