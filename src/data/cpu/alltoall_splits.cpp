// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/alltoall_splits.hpp"

#include "base/check.hpp"

namespace kolo::data::cpu {

void AlltoallSplits::open_lengths() {
  const auto size = static_cast<std::size_t>(site_.topology.size);
  const auto rank = static_cast<std::size_t>(site_.topology.rank);
  sent_counts_.clear();
  for (std::size_t to = 0; to < size; ++to) {
    for (const data::Run& run : runs()) {
      KOLO_CHECK(run.splits.size() == size) << run.splits.size() << " splits for " << size << " ranks";
      sent_counts_.push_back(run.splits[to]);
    }
  }
  received_counts_.assign(sent_counts_.size(), 0);
  largest_counts_.clear();
  for (std::size_t distance = 0; distance < size; ++distance) {
    for (const data::Run& run : runs()) largest_counts_.push_back(run.splits[(rank + distance) % size]);
  }
  const std::vector<std::int64_t> widths(size, static_cast<std::int64_t>(runs().size() * sizeof(std::int64_t)));
  splits_.open(reinterpret_cast<const std::byte*>(sent_counts_.data()),
               reinterpret_cast<std::byte*>(received_counts_.data()), widths, widths, widths);
  auto* bytes = reinterpret_cast<std::byte*>(largest_counts_.data());
  largest_piece_ = {bytes, bytes, static_cast<std::int64_t>(largest_counts_.size())};
  largest_.open(ReduceOp::max, largest_piece_);
  splits_end_ = 0;
}

Collective::Cut AlltoallSplits::cut_lengths(Chunk& chunk, std::uint64_t taken) {
  if (splits_.cut(chunk, taken) == Cut::chunk || largest_.cut(chunk, taken) == Cut::chunk) {
    splits_end_ = chunk.number + 1;
    return Cut::chunk;
  }
  return taken < splits_end_ ? Cut::wait : Cut::end;
}

void AlltoallSplits::open_rows(std::size_t index, Alltoall& rows) {
  data::Run& run = runs()[index];
  const auto of_run = [&](const std::vector<std::int64_t>& counts, std::int64_t unit) {
    std::vector<std::int64_t> own;
    for (std::size_t i = index; i < counts.size(); i += runs().size()) own.push_back(counts[i] * unit);
    return own;
  };
  std::byte* output = allocate_output(run, of_run(received_counts_, 1));
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  rows.open(run.pieces.front().input, output, of_run(sent_counts_, row_bytes), of_run(received_counts_, row_bytes),
            of_run(largest_counts_, row_bytes));
}

}  // namespace kolo::data::cpu
