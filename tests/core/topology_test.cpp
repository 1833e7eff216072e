// SPDX-License-Identifier: Apache-2.0
#include "core/topology.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace kolo::core {
namespace {

using Nodes = std::vector<std::vector<int>>;

TEST(Topology, OfOneRank) {
  const Topology t = make_topology(0, {7}, 0);
  EXPECT_EQ(t.nodes, (Nodes{{0}}));
  EXPECT_EQ(t.size, 1);
  EXPECT_TRUE(t.is_leader());
  EXPECT_EQ(t.cross_size(), 1);
  EXPECT_TRUE(t.is_homogeneous());
}

TEST(Topology, NumbersNodesByTheirLowestRank) {
  // Machine 9 holds the lowest rank although its number is higher.
  const Topology t = make_topology(3, {9, 2, 9, 2, 9}, 0);
  EXPECT_EQ(t.nodes, (Nodes{{0, 2, 4}, {1, 3}}));
  EXPECT_EQ(t.node_of, (std::vector<int>{0, 1, 0, 1, 0}));
  EXPECT_EQ(t.local_rank_of, (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(t.node, 1);
  EXPECT_EQ(t.local_rank, 1);
  EXPECT_EQ(t.local_size(), 2);
  EXPECT_EQ(t.leader_of(1), 1);
  EXPECT_FALSE(t.is_leader());
  EXPECT_FALSE(t.is_homogeneous());
}

TEST(Topology, NumbersMachinesByTheLowestRankOfTheirName) {
  EXPECT_EQ(number_machines({"b", "a", "b", "", "a"}), (std::vector<int>{0, 1, 0, 3, 1}));
}

TEST(Topology, CutsMachinesIntoVirtualNodesTheLastOneSmaller) {
  const Topology t = make_topology(4, std::vector<int>(5, 0), 2);
  EXPECT_EQ(t.nodes, (Nodes{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(t.cross_rank(), 2);
  EXPECT_EQ(t.cross_size(), 3);
  const Topology second = make_topology(3, std::vector<int>(5, 0), 2);
  EXPECT_EQ(second.cross_rank(), 1);
  EXPECT_EQ(second.cross_size(), 2);
}

TEST(Topology, MakesATreeLikeAHeap) {
  const Topology t = make_topology(0, std::vector<int>(14, 0), 2);
  ASSERT_EQ(t.node_count(), 7);
  EXPECT_EQ(t.tree_children(0, 2), (std::vector<int>{1, 2}));
  EXPECT_EQ(t.tree_children(2, 2), (std::vector<int>{5, 6}));
  EXPECT_EQ(t.tree_children(3, 2), std::vector<int>{});
  EXPECT_EQ(Topology::tree_parent(6, 2), 2);
  EXPECT_EQ(t.tree_ranks(2, 2), (std::vector<int>{4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(t.tree_ranks(0, 2).size(), 14U);
  EXPECT_EQ(t.tree_children(0, 3), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(t.tree_children(1, 3), (std::vector<int>{4, 5, 6}));
}

}  // namespace
}  // namespace kolo::core
