// SPDX-License-Identifier: Apache-2.0
#include "engine/node_memory.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace {

using kolo::core::SetId;
using kolo::engine::Blocks;

/// Ranks 0, 2, 4 on node 0, and 1, 3 on node 1, as this rank sees it.
kolo::core::Topology topology(int rank) { return kolo::core::make_topology(rank, {0, 1, 0, 1, 0}, 0); }

TEST(Blocks, ARankHasOneColumnForEachOfItsSets) {
  const kolo::core::Topology world = topology(0);
  Blocks blocks(world, 10);
  blocks.add(1, {4, 0});
  blocks.add(2, {1, 2, 4});
  EXPECT_EQ(blocks.block_of(1, 0), 1U);
  EXPECT_EQ(blocks.block_of(1, 2), 1U);
  EXPECT_EQ(blocks.block_of(2, 1), 1U);  // rank 2 is in no other set
  EXPECT_EQ(blocks.block_of(2, 2), 2U);
  blocks.remove(1);
  blocks.add(3, {0, 4});
  EXPECT_EQ(blocks.block_of(3, 0), 1U);  // that of the set that has gone
  EXPECT_EQ(blocks.block_of(3, 2), 1U);
}

/// All ranks of a node read the same log and come to the same account; no column is two sets' at once.
TEST(Blocks, AreTheSameOnAllRanksOfANode) {
  constexpr std::size_t kMost = 6;
  const kolo::core::Topology worlds[] = {topology(0), topology(2), topology(4)};
  std::vector<Blocks> accounts;
  for (const kolo::core::Topology& world : worlds) accounts.emplace_back(world, kMost);
  std::mt19937 random(7);
  std::map<SetId, std::vector<std::int32_t>> alive;
  std::vector<int> memberships(5);
  for (SetId next = 1; next < 2000; ++next) {
    std::vector<std::int32_t> members;
    for (int rank = 0; rank < 5; ++rank) {
      if (random() % 2 == 0 && memberships[static_cast<std::size_t>(rank)] + 1 < static_cast<int>(kMost)) {
        members.push_back(rank);
      }
    }
    if (members.empty() || random() % 2 == 0) {
      if (alive.empty()) continue;
      const auto gone = std::next(alive.begin(), static_cast<std::ptrdiff_t>(random() % alive.size()));
      for (const std::int32_t member : gone->second) --memberships[static_cast<std::size_t>(member)];
      for (Blocks& blocks : accounts) blocks.remove(gone->first);
      alive.erase(gone);
      continue;
    }
    for (const std::int32_t member : members) ++memberships[static_cast<std::size_t>(member)];
    for (Blocks& blocks : accounts) blocks.add(next, members);
    alive.emplace(next, members);
    std::set<std::pair<int, std::size_t>> taken;
    for (const auto& [set, of] : alive) {
      for (const std::int32_t member : of) {
        if (member % 2 == 1) continue;  // of the other node
        const std::size_t block = accounts[0].block_of(set, member / 2);
        EXPECT_TRUE(block >= 1 && block < kMost);
        EXPECT_TRUE(taken.emplace(member, block).second);
        EXPECT_EQ(accounts[1].block_of(set, member / 2), block);
        EXPECT_EQ(accounts[2].block_of(set, member / 2), block);
      }
    }
  }
}

}  // namespace
