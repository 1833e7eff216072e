// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/scatter.hpp"

#include <vector>

#include "base/check.hpp"

namespace kolo::data::cpu {

void Scatter::open_lengths() {
  lengths_.open(runs().size());
  const int size = site_.topology.size;
  for (std::size_t i = 0; i < runs().size(); ++i) {
    const data::Run& run = runs()[i];
    KOLO_CHECK(run.splits.size() == static_cast<std::size_t>(size))
        << run.splits.size() << " splits for " << size << " ranks";
    if (run.root != site_.topology.rank) continue;
    for (int rank = 0; rank < size; ++rank) lengths_.at(i, rank) = run.splits[static_cast<std::size_t>(rank)];
  }
}

void Scatter::open_rows(std::size_t index, Alltoall& rows) {
  data::Run& run = runs()[index];
  const int size = site_.topology.size;
  const int root = run.root;
  const std::vector<std::int64_t> nothing(static_cast<std::size_t>(size), 0);
  std::vector<std::int64_t> receive = nothing;
  std::int64_t& own = receive[static_cast<std::size_t>(root)];
  own = lengths_.at(index, site_.topology.rank);
  std::byte* const output = allocate_output(run, receive);
  const std::int64_t row_bytes = run.row_elements * static_cast<std::int64_t>(size_of(run.dtype));
  own *= row_bytes;
  std::vector<std::int64_t> bytes = lengths_.of(index);
  for (std::int64_t& count : bytes) count *= row_bytes;
  std::vector<std::int64_t> over_distance;  // over each, the root sends to one rank
  over_distance.reserve(bytes.size());
  for (int distance = 0; distance < size; ++distance)
    over_distance.push_back(bytes[static_cast<std::size_t>((root + distance) % size)]);
  rows.open(run.pieces.front().input, output, root == site_.topology.rank ? bytes : nothing, receive, over_distance);
}

}  // namespace kolo::data::cpu
