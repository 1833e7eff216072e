// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/batch_space.hpp"

#include <algorithm>

namespace kolo::control {
namespace {

bool shares_batches(const core::Signature& signature) noexcept {
  const core::CollectiveTraits& traits = core::traits_of(signature.kind);
  return traits.fuses || (traits.batches && (signature.device == DeviceKind::cpu || !traits.rows_differ));
}

std::uint64_t uneven_tensors(const core::Signature& signature) noexcept {
  return core::traits_of(signature.kind).rows_differ ? signature.tensors.size() : 0;
}

}  // namespace

bool BatchSpace::takes(const core::Signature& signature, std::int64_t bytes) const noexcept {
  if (!kind_) return true;
  return is_shared_ && shares_batches(signature) && signature.kind == *kind_ && threshold_ > 0 &&
         bytes <= threshold_ - bytes_ && uneven_tensors_ + uneven_tensors(signature) <= kMostUnevenTensors;
}

void BatchSpace::add(const core::Signature& signature, std::int64_t bytes) noexcept {
  kind_ = signature.kind;
  is_shared_ = is_shared_ && shares_batches(signature);
  bytes_ += std::min(bytes, threshold_);
  uneven_tensors_ += uneven_tensors(signature);
}

std::uint64_t BatchSpace::add_alike(const core::Signature& signature, std::int64_t bytes, std::uint64_t most) noexcept {
  add(signature, bytes);
  if (!takes(signature, bytes)) return 1;
  std::uint64_t more = most - 1;
  const std::uint64_t tensors = uneven_tensors(signature);
  if (bytes > 0) more = std::min(more, static_cast<std::uint64_t>((threshold_ - bytes_) / bytes));
  if (tensors > 0) more = std::min(more, (kMostUnevenTensors - uneven_tensors_) / tensors);
  bytes_ += static_cast<std::int64_t>(more) * bytes;
  uneven_tensors_ += more * tensors;
  return 1 + more;
}

}  // namespace kolo::control
