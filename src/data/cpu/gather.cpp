// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/gather.hpp"

#include <vector>

namespace kolo::data::cpu {

void Gather::open(const data::Run& run, data::Job& job) {
  run_ = &run;
  job_ = &job;
  lengths_.open()[static_cast<std::size_t>(site_.topology.rank)] =
      run.elements * static_cast<std::int64_t>(size_of(run.dtype));
  lengths_known_ = false;
}

Collective::Cut Gather::cut(Chunk& chunk, std::uint64_t taken) {
  if (!lengths_known_) {
    const Cut cut = lengths_.cut(chunk, taken);
    if (cut != Cut::end) return cut;
    open_rows();
  }
  return rows_.cut(chunk, taken);
}

void Gather::open_rows() {
  lengths_known_ = true;
  const std::vector<std::int64_t>& bytes = lengths_.all();
  const int size = site_.topology.size;
  const int root = run_->root;
  const bool is_root = root == site_.topology.rank;
  std::byte* const output = is_root ? allocate_output(*run_, bytes, job_->status) : nullptr;
  const std::vector<std::int64_t> nothing(bytes.size(), 0);
  std::vector<std::int64_t> send = nothing;
  send[static_cast<std::size_t>(root)] = bytes[static_cast<std::size_t>(site_.topology.rank)];
  std::vector<std::int64_t> over_distance;  // over each, one rank sends to the root
  over_distance.reserve(bytes.size());
  for (int distance = 0; distance < size; ++distance)
    over_distance.push_back(bytes[static_cast<std::size_t>((root - distance + size) % size)]);
  rows_.open(run_->pieces.front().input, output, send, is_root ? bytes : nothing, over_distance);
}

}  // namespace kolo::data::cpu
