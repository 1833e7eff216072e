// SPDX-License-Identifier: Apache-2.0
#include "transport/node_link.hpp"

#include <numeric>

namespace kolo::transport {

Sharers Sharers::all(const core::Topology& world) {
  std::vector<int> members(static_cast<std::size_t>(world.size));
  std::iota(members.begin(), members.end(), 0);
  return of(world, members);
}

Sharers Sharers::of(const core::Topology& world, const std::vector<int>& members) {
  Sharers sharers{core::topology_of(world, members), members, {}};
  for (const int rank : sharers.topology.nodes[static_cast<std::size_t>(sharers.topology.node)]) {
    const int member = members[static_cast<std::size_t>(rank)];
    sharers.local_ranks.push_back(world.local_rank_of[static_cast<std::size_t>(member)]);
  }
  return sharers;
}

}  // namespace kolo::transport
