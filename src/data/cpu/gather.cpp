// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/gather.hpp"

#include <vector>

namespace kolo::data::cpu {

void Gather::open_lengths() {
  lengths_.open(runs().size());
  for (std::size_t i = 0; i < runs().size(); ++i) {
    const data::Run& run = runs()[i];
    lengths_.at(i, site_.topology.rank) = run.elements * static_cast<std::int64_t>(size_of(run.dtype));
  }
}

void Gather::open_rows(std::size_t index, Alltoall& rows) {
  data::Run& run = runs()[index];
  const std::vector<std::int64_t> bytes = lengths_.of(index);
  const int size = site_.topology.size;
  const int root = run.root;
  const bool is_root = root == site_.topology.rank;
  std::byte* const output = is_root ? allocate_output(run, bytes) : nullptr;
  const std::vector<std::int64_t> nothing(bytes.size(), 0);
  std::vector<std::int64_t> send = nothing;
  send[static_cast<std::size_t>(root)] = bytes[static_cast<std::size_t>(site_.topology.rank)];
  std::vector<std::int64_t> over_distance;  // over each, one rank sends to the root
  over_distance.reserve(bytes.size());
  for (int distance = 0; distance < size; ++distance)
    over_distance.push_back(bytes[static_cast<std::size_t>((root - distance + size) % size)]);
  rows.open(run.pieces.front().input, output, send, is_root ? bytes : nothing, over_distance);
}

// ---------------------------------------------------------------- small calls

/// The root copies all inputs.
constexpr SmallPart Gather::kSmall = {[](CpuSmallCalls& calls, const SmallCall& call) {
                                        return calls.lay_out_contribution(
                                            call, calls.is_root(call) ? whole(call) : CpuSmallCalls::Range{});
                                      },
                                      [](CpuSmallCalls& calls, const SmallCall& call) {
                                        if (calls.is_root(call)) calls.take_contributions(call);
                                      }};

}  // namespace kolo::data::cpu
