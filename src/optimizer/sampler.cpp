// SPDX-License-Identifier: Apache-2.0
#include <kolo/sampler.hpp>

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include <kolo/error.hpp>

namespace kolo {
namespace {

// Uniform over 0 ... bound-1. Draws beyond the last whole multiple of `bound` would favour small numbers: drawn again.
std::size_t draw_below(std::mt19937_64& generator, std::uint64_t bound) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t excess = (kMost % bound + 1) % bound;  // 2^64 mod bound
  std::uint64_t drawn = generator();
  while (drawn > kMost - excess) {
    drawn = generator();
  }
  return drawn % bound;
}

std::vector<std::size_t> shuffled(std::vector<std::size_t> rows, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  for (std::size_t i = rows.size(); i > 1; --i) {
    std::swap(rows[i - 1], rows[draw_below(generator, i)]);
  }
  return rows;
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options)
    : DistributedSampler(current_context(), dataset_size, options) {}

DistributedSampler::DistributedSampler(const Group& group, std::size_t dataset_size, DistributedSamplerOptions options)
    : DistributedSampler(dataset_size, kolo::rank(group), kolo::size(group), options) {}

DistributedSampler::DistributedSampler(std::size_t dataset_size, int rank, int size, DistributedSamplerOptions options)
    : dataset_size_(dataset_size), rank_(static_cast<std::size_t>(rank)), ranks_(static_cast<std::size_t>(size)),
      options_(options), rows_per_rank_(0) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(ErrorCode::invalid_argument, "DistributedSampler: rank " + std::to_string(rank) + " of " +
                                                 std::to_string(size) + "; ranks are 0 to size - 1");
  }
  const bool padded = !options.drop_last && dataset_size % ranks_ != 0;
  rows_per_rank_ = dataset_size / ranks_ + (padded ? 1 : 0);
}

std::vector<std::size_t> DistributedSampler::epoch(std::uint64_t number) const {
  std::vector<std::size_t> order(dataset_size_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (options_.shuffle) {
    order = shuffled(std::move(order), options_.seed + number);
  }

  std::vector<std::size_t> rows(rows_per_rank_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = order[(rank_ + i * ranks_) % dataset_size_];
  }
  return rows;
}

}  // namespace kolo
