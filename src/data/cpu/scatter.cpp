// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/scatter.hpp"

#include <algorithm>
#include <vector>

#include "base/check.hpp"

namespace kolo::data::cpu {

void Scatter::open(const data::Run& run, data::Job& job) {
  run_ = &run;
  job_ = &job;
  std::vector<std::int64_t>& rows = lengths_.open();
  KOLO_CHECK(run.splits.size() == rows.size()) << run.splits.size() << " splits for " << rows.size() << " ranks";
  if (run.root == site_.topology.rank) std::copy(run.splits.begin(), run.splits.end(), rows.begin());
  lengths_known_ = false;
}

Collective::Cut Scatter::cut(Chunk& chunk, std::uint64_t taken) {
  if (!lengths_known_) {
    const Cut cut = lengths_.cut(chunk, taken);
    if (cut != Cut::end) return cut;
    open_rows();
  }
  return rows_.cut(chunk, taken);
}

void Scatter::open_rows() {
  lengths_known_ = true;
  const int size = site_.topology.size;
  const int root = run_->root;
  const std::vector<std::int64_t> nothing(static_cast<std::size_t>(size), 0);
  std::vector<std::int64_t> receive = nothing;
  std::int64_t& own = receive[static_cast<std::size_t>(root)];
  own = lengths_.all()[static_cast<std::size_t>(site_.topology.rank)];
  std::byte* const output = allocate_output(*run_, receive, job_->status);
  const std::int64_t row_bytes = run_->row_elements * static_cast<std::int64_t>(size_of(run_->dtype));
  own *= row_bytes;
  std::vector<std::int64_t> bytes = lengths_.all();
  for (std::int64_t& count : bytes) count *= row_bytes;
  std::vector<std::int64_t> over_distance;  // over each, the root sends to one rank
  over_distance.reserve(bytes.size());
  for (int distance = 0; distance < size; ++distance)
    over_distance.push_back(bytes[static_cast<std::size_t>((root + distance) % size)]);
  rows_.open(run_->pieces.front().input, output, root == site_.topology.rank ? bytes : nothing, receive, over_distance);
}

}  // namespace kolo::data::cpu
