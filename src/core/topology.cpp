// SPDX-License-Identifier: Apache-2.0
#include "core/topology.hpp"

#include <algorithm>
#include <map>

#include "base/check.hpp"

namespace kolo::core {
namespace {

// Cuts each machine's ranks into nodes and numbers these by their lowest rank.
std::vector<std::vector<int>> cut(const std::vector<int>& machine_of, int ranks_per_node) {
  std::map<int, std::vector<int>> machines;
  for (std::size_t rank = 0; rank < machine_of.size(); ++rank) {
    machines[machine_of[rank]].push_back(static_cast<int>(rank));
  }
  std::vector<std::vector<int>> nodes;
  for (const auto& [machine, ranks] : machines) {
    const std::size_t step = ranks_per_node > 0 ? static_cast<std::size_t>(ranks_per_node) : ranks.size();
    for (std::size_t begin = 0; begin < ranks.size(); begin += step) {
      const std::size_t end = std::min(ranks.size(), begin + step);
      nodes.emplace_back(ranks.begin() + static_cast<std::ptrdiff_t>(begin),
                         ranks.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return nodes;
}

}  // namespace

std::vector<int> number_machines(const std::vector<std::string>& name_of) {
  std::map<std::string, int> numbers;
  std::vector<int> machine_of;
  for (std::size_t rank = 0; rank < name_of.size(); ++rank)
    machine_of.push_back(numbers.emplace(name_of[rank], static_cast<int>(rank)).first->second);
  return machine_of;
}

int Topology::cross_rank() const noexcept {
  int before = 0;
  for (int other = 0; other < node; ++other) {
    if (static_cast<int>(nodes[static_cast<std::size_t>(other)].size()) > local_rank) ++before;
  }
  return before;
}

int Topology::cross_size() const noexcept {
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [this](const std::vector<int>& ranks) {
    return static_cast<int>(ranks.size()) > local_rank;
  }));
}

bool Topology::is_homogeneous() const noexcept {
  return std::all_of(nodes.begin(), nodes.end(),
                     [this](const std::vector<int>& ranks) { return ranks.size() == nodes.front().size(); });
}

std::vector<int> Topology::tree_children(int which, int fanout) const {
  std::vector<int> children;
  for (int i = 1; i <= fanout; ++i) {
    const std::int64_t child = std::int64_t{which} * fanout + i;
    if (child < node_count()) children.push_back(static_cast<int>(child));
  }
  return children;
}

std::vector<int> Topology::tree_ranks(int which, int fanout) const {
  std::vector<int> ranks;
  std::vector<int> open{which};
  while (!open.empty()) {
    const int next = open.back();
    open.pop_back();
    const std::vector<int>& here = nodes[static_cast<std::size_t>(next)];
    ranks.insert(ranks.end(), here.begin(), here.end());
    const std::vector<int> children = tree_children(next, fanout);
    open.insert(open.end(), children.begin(), children.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Topology make_topology(int rank, const std::vector<int>& machine_of, int ranks_per_node) {
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(machine_of.size());
  topology.nodes = cut(machine_of, ranks_per_node);
  topology.node_of.resize(machine_of.size());
  topology.local_rank_of.resize(machine_of.size());
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    const std::vector<int>& ranks = topology.nodes[node];
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      topology.node_of[static_cast<std::size_t>(ranks[local])] = static_cast<int>(node);
      topology.local_rank_of[static_cast<std::size_t>(ranks[local])] = static_cast<int>(local);
    }
  }
  topology.node = topology.node_of[static_cast<std::size_t>(rank)];
  topology.local_rank = topology.local_rank_of[static_cast<std::size_t>(rank)];
  return topology;
}

Topology topology_of(const Topology& world, const std::vector<int>& members) {
  const auto self = std::find(members.begin(), members.end(), world.rank);
  KOLO_CHECK(self != members.end()) << "rank " << world.rank << " is none of them";
  std::vector<int> node_of;
  node_of.reserve(members.size());
  for (const int member : members) node_of.push_back(world.node_of[static_cast<std::size_t>(member)]);
  return make_topology(static_cast<int>(self - members.begin()), node_of, 0);
}

bool are_among(const std::vector<int>& ranks, const std::vector<int>& others) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return std::find(others.begin(), others.end(), rank) != others.end(); });
}

}  // namespace kolo::core
