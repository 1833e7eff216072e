// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <torch/serialize/archive.h>

#include <kolo/error.hpp>
#include <kolo/libtorch.hpp>

namespace kolo::libtorch {

DistributedSampler::DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options)
    : DistributedSampler(kolo::DistributedSampler(dataset_size, options)) {}
DistributedSampler::DistributedSampler(const Group& group, std::size_t dataset_size, DistributedSamplerOptions options)
    : DistributedSampler(kolo::DistributedSampler(group, dataset_size, options)) {}
DistributedSampler::DistributedSampler(kolo::DistributedSampler sampler)
    : sampler_(std::move(sampler)), rows_(sampler_.epoch(0)) {}

void DistributedSampler::reset(NewSize new_size) {
  if (new_size.has_value()) {
    throw Error(ErrorCode::invalid_argument, "DistributedSampler: reset() with a new size; make a new sampler for it");
  }
  rows_ = sampler_.epoch(next_epoch_++);
  place_ = 0;
}

DistributedSampler::Batch DistributedSampler::next(std::size_t batch_size) {
  if (batch_size == 0) {
    throw Error(
        ErrorCode::invalid_argument,
        "DistributedSampler: next(0): a batch has at least one row; a batch of all ranks that is divided by their "
        "number needs as many rows as there are ranks");
  }
  const std::size_t count = std::min(batch_size, rows_.size() - place_);
  if (count == 0) {
    return {};
  }
  const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(place_);
  place_ += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

// What is saved is the epoch that the next reset() begins and the place in this one; the rest is the constructor's.
void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("next_epoch", c10::IValue(static_cast<std::int64_t>(next_epoch_)));
  archive.write("place", c10::IValue(static_cast<std::int64_t>(place_)));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue next_epoch, place;
  archive.read("next_epoch", next_epoch);
  archive.read("place", place);
  next_epoch_ = static_cast<std::uint64_t>(next_epoch.toInt());
  rows_ = sampler_.epoch(next_epoch_ == 0 ? 0 : next_epoch_ - 1);
  place_ = std::min(static_cast<std::size_t>(place.toInt()), rows_.size());
}

}  // namespace kolo::libtorch
