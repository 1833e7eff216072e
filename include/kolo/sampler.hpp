// SPDX-License-Identifier: Apache-2.0
//
// Chooses this rank's rows of a data set in each epoch.
#ifndef KOLO_SAMPLER_HPP
#define KOLO_SAMPLER_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

struct DistributedSamplerOptions {
  /// Whether each epoch shuffles the rows; else they keep their order.
  bool shuffle = true;
  /// The seed of the shuffles; the same on every rank.
  std::uint64_t seed = 0;
  /// If the number of rows is no multiple of the ranks: leave out the last few rows instead of giving the first few
  /// twice.
  bool drop_last = false;

  KOLO_SETTER(DistributedSamplerOptions, bool, shuffle)
  KOLO_SETTER(DistributedSamplerOptions, std::uint64_t, seed)
  KOLO_SETTER(DistributedSamplerOptions, bool, drop_last)
};

/// Distributes the rows of a data set to the ranks, as torch.utils.data.DistributedSampler does
/// (https://pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler): all ranks shuffle the
/// same way, the order is padded from its own beginning (or cut) to a multiple of the ranks, and rank r takes places r,
/// r + size, r + 2 size, ... Every rank gets the same number of rows, and batches of B / size rows on each rank are
/// together the batch of B rows that one rank alone would have.
///
/// The order of epoch e is a Fisher-Yates shuffle of 0 ... n-1 from the back, place i drawn from 0 ... i by rejection
/// from std::mt19937_64(seed + e): a function of the arguments alone, the same everywhere (std::shuffle's is not).
/// It communicates with no rank and changes nothing, so several threads may use it.
class KOLO_API DistributedSampler {
 public:
  /// For this rank of the calling thread's context. Rank and size are read now and not later.
  explicit DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options = {});
  DistributedSampler(const Group& group, std::size_t dataset_size, DistributedSamplerOptions options = {});
  /// For any rank. Throws `Error` (invalid_argument) unless 0 <= rank < size.
  DistributedSampler(std::size_t dataset_size, int rank, int size, DistributedSamplerOptions options = {});

  /// How many rows this rank (and every other) gets in an epoch.
  [[nodiscard]] std::size_t size() const noexcept { return rows_per_rank_; }

  /// This rank's rows in epoch `number` (any number), in the order to visit them: indices below the data set's size.
  [[nodiscard]] std::vector<std::size_t> epoch(std::uint64_t number) const;

 private:
  std::size_t dataset_size_;
  std::size_t rank_;
  std::size_t ranks_;
  DistributedSamplerOptions options_;
  std::size_t rows_per_rank_;
};

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_SAMPLER_HPP
