// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/alltoall_splits.hpp"

#include "base/check.hpp"

namespace kolo::data::cpu {

void AlltoallSplits::open(const data::Run& run, data::Job& job) {
  run_ = &run;
  job_ = &job;
  const auto size = static_cast<std::size_t>(site_.topology.size);
  KOLO_CHECK(run.splits.size() == size) << run.splits.size() << " splits for " << size << " ranks";
  sent_counts_.assign(run.splits.begin(), run.splits.end());
  received_counts_.assign(size, 0);
  largest_counts_.clear();
  for (std::size_t distance = 0; distance < size; ++distance)
    largest_counts_.push_back(sent_counts_[(static_cast<std::size_t>(site_.topology.rank) + distance) % size]);
  const std::vector<std::int64_t> widths(size, sizeof(std::int64_t));
  splits_.open(reinterpret_cast<const std::byte*>(sent_counts_.data()),
               reinterpret_cast<std::byte*>(received_counts_.data()), widths, widths, widths);
  auto* bytes = reinterpret_cast<std::byte*>(largest_counts_.data());
  largest_piece_ = {bytes, bytes, site_.topology.size};
  largest_.open(ReduceOp::max, largest_piece_);
  splits_known_ = false;
}

Collective::Cut AlltoallSplits::cut(Chunk& chunk, std::uint64_t taken) {
  if (!splits_known_) {
    if (splits_.cut(chunk, taken) == Cut::chunk || largest_.cut(chunk, taken) == Cut::chunk) {
      splits_end_ = chunk.number + 1;
      return Cut::chunk;
    }
    if (taken < splits_end_) return Cut::wait;
    open_rows();
  }
  return rows_.cut(chunk, taken);
}

void AlltoallSplits::open_rows() {
  splits_known_ = true;
  std::byte* output = allocate_output(*run_, received_counts_, job_->status);
  const std::int64_t row_bytes = run_->row_elements * static_cast<std::int64_t>(size_of(run_->dtype));
  for (std::vector<std::int64_t>* rows : {&sent_counts_, &received_counts_, &largest_counts_})
    for (std::int64_t& count : *rows) count *= row_bytes;
  rows_.open(run_->pieces.front().input, output, sent_counts_, received_counts_, largest_counts_);
}

}  // namespace kolo::data::cpu
