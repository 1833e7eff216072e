// SPDX-License-Identifier: Apache-2.0
//
// Which rank is on which node. Nodes are numbered by their lowest rank; a node's leader is its lowest rank; local ranks
// follow the order of ranks. With virtual nodes, a "node" is one of the parts that a machine's ranks were cut into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kolo::core {

struct Topology {
  int rank = 0;
  int size = 1;
  int node = 0;
  int local_rank = 0;
  std::vector<std::vector<int>> nodes;  ///< the ranks of every node, ascending
  std::vector<int> node_of;             ///< by rank
  std::vector<int> local_rank_of;       ///< by rank

  [[nodiscard]] int node_count() const noexcept { return static_cast<int>(nodes.size()); }
  [[nodiscard]] int local_size() const noexcept {
    return static_cast<int>(nodes[static_cast<std::size_t>(node)].size());
  }
  [[nodiscard]] int leader_of(int which) const noexcept { return nodes[static_cast<std::size_t>(which)].front(); }
  [[nodiscard]] bool is_leader() const noexcept { return local_rank == 0; }
  /// Place among the ranks of the same local rank, across the nodes that have one.
  [[nodiscard]] int cross_rank() const noexcept;
  [[nodiscard]] int cross_size() const noexcept;
  [[nodiscard]] bool is_homogeneous() const noexcept;  ///< every node has the same number of ranks

  // The tree of nodes that control messages travel in: rooted at node 0, `fanout` children a node, in the order of a
  // heap (children of k are k*fanout+1 ... k*fanout+fanout).
  [[nodiscard]] static int tree_parent(int node, int fanout) noexcept { return (node - 1) / fanout; }
  [[nodiscard]] std::vector<int> tree_children(int which, int fanout) const;
  /// All ranks of `which` and of every node below it in the tree, ascending.
  [[nodiscard]] std::vector<int> tree_ranks(int which, int fanout) const;
};

/// Numbers machines by the lowest rank that has each name.
std::vector<int> number_machines(const std::vector<std::string>& name_of);

/// Builds the topology from one machine number a rank (equal numbers: same machine), as seen by `rank`. Each machine's
/// ranks, in ascending order, are cut into virtual nodes of `ranks_per_node` (0: not cut), the last possibly smaller.
Topology make_topology(int rank, const std::vector<int>& machine_of, int ranks_per_node);

/// The topology of some ranks of a world, in this order; a rank is then a place in `members`. The world's own rank must
/// be one of them. Nodes without members are left out.
Topology topology_of(const Topology& world, const std::vector<int>& members);

/// Whether all of some ranks are among others.
[[nodiscard]] bool are_among(const std::vector<int>& ranks, const std::vector<int>& others);

}  // namespace kolo::core
