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
  std::byte* const output = run.root == site_.topology.rank ? allocate_output(run, bytes) : nullptr;
  open_rooted(rows, run, output, bytes, /*to_root=*/true);
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
