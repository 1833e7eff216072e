// SPDX-License-Identifier: Apache-2.0
#include "engine/spread.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace kolo::engine {
namespace {

TEST(BetterCpu, TheLastOfThreeGoesToWhereOneIs) {
  const std::vector<int> both{0, 1};
  EXPECT_EQ(better_cpu({1, 1, 0, 1}, 3, both), 0);
  EXPECT_FALSE(better_cpu({1, 1, 0, 1}, 1, both)) << "another one goes";
  EXPECT_FALSE(better_cpu({1, 1, 0, 1}, 2, both)) << "it has company enough";
}

TEST(BetterCpu, EvenIsGoodEnough) {
  EXPECT_FALSE(better_cpu({0, 1, 0, 1}, 3, {0, 1}));
  EXPECT_FALSE(better_cpu({0, 1, 1}, 2, {0, 1})) << "one more on one of them: nothing would be won";
}

TEST(BetterCpu, OnlyWhereItMay) {
  EXPECT_FALSE(better_cpu({5, 5, 5, 5}, 3, {5}));
  EXPECT_FALSE(better_cpu({5, 5, 5, 5}, 3, {}));
  EXPECT_EQ(better_cpu({5, 5, 5, 5}, 3, {5, 70}), 70);
}

TEST(BetterCpu, WhoHasNotSaidIsNowhere) {
  EXPECT_FALSE(better_cpu({-1, -1, -1, 0}, 3, {0, 1}));
  EXPECT_FALSE(better_cpu({-1, -1, -1, -1}, 3, {0, 1}));
}

TEST(BetterCpu, AllOnOneEndEvenly) {
  std::vector<int> cpus(8, 2);
  const std::vector<int> allowed{0, 1, 2, 3};
  for (int round = 0; round < 8; ++round) {
    for (int rank = 0; rank < 8; ++rank) {
      const std::optional<int> better = better_cpu(cpus, rank, allowed);
      if (better) cpus[static_cast<std::size_t>(rank)] = *better;
    }
  }
  for (const int cpu : allowed) {
    EXPECT_EQ(std::count(cpus.begin(), cpus.end(), cpu), 2) << "on " << cpu;
  }
}

}  // namespace
}  // namespace kolo::engine
