// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <kolo/sampler.hpp>

#include "errors.hpp"

namespace kolo {
namespace {

using Rows = std::vector<std::size_t>;
using Options = DistributedSamplerOptions;

// What all ranks get together, in the order in which a single rank would.
Rows dealt_back(std::size_t rows, int size, const Options& options, std::uint64_t epoch) {
  std::vector<Rows> by_rank;
  for (int rank = 0; rank < size; ++rank) {
    const DistributedSampler sampler(rows, rank, size, options);
    by_rank.push_back(sampler.epoch(epoch));
    EXPECT_EQ(by_rank.back().size(), sampler.size());
  }
  Rows together;
  for (std::size_t i = 0; i < by_rank[0].size(); ++i) {
    for (const Rows& shard : by_rank) {
      together.push_back(shard.at(i));
    }
  }
  return together;
}

// The documented permutation, computed by another implementation of mt19937_64 and Fisher-Yates.
TEST(DistributedSampler, OrderIsTheDocumentedOne) {
  EXPECT_EQ(DistributedSampler(10, 0, 1, Options{}.with_seed(42)).epoch(3), (Rows{4, 7, 2, 8, 0, 5, 6, 3, 9, 1}));
  EXPECT_EQ(DistributedSampler(7, 0, 1).epoch(0), (Rows{4, 0, 1, 2, 6, 5, 3}));
}

TEST(DistributedSampler, AnyNumberOfRanksSeesTheSameOrder) {
  const Rows alone = DistributedSampler(24, 0, 1, Options{}.with_seed(5)).epoch(9);
  for (const int size : {2, 3, 4, 8}) {
    EXPECT_EQ(dealt_back(24, size, Options{}.with_seed(5), 9), alone) << size;
  }
}

TEST(DistributedSampler, PadsFromTheBeginning) {
  const Rows alone = DistributedSampler(10, 0, 1).epoch(1);
  Rows padded = alone;
  padded.insert(padded.end(), {alone[0], alone[1]});
  EXPECT_EQ(dealt_back(10, 4, {}, 1), padded);
  EXPECT_EQ(dealt_back(3, 8, Options{}.with_shuffle(false), 0), (Rows{0, 1, 2, 0, 1, 2, 0, 1})) << "wraps often enough";
}

TEST(DistributedSampler, DropsTheTail) {
  const Rows alone = DistributedSampler(10, 0, 1).epoch(1);
  EXPECT_EQ(dealt_back(10, 4, Options{}.with_drop_last(true), 1), Rows(alone.begin(), alone.begin() + 8));
  EXPECT_EQ(dealt_back(3, 8, Options{}.with_drop_last(true), 0), Rows{});
  EXPECT_EQ(dealt_back(12, 4, Options{}.with_drop_last(true), 0).size(), 12U);
}

TEST(DistributedSampler, WithoutShuffleRowsKeepTheirOrder) {
  const DistributedSampler sampler(7, 1, 3, Options{}.with_shuffle(false));
  EXPECT_EQ(sampler.epoch(0), (Rows{1, 4, 0}));
  EXPECT_EQ(sampler.epoch(17), (Rows{1, 4, 0}));
}

TEST(DistributedSampler, EpochsAreDifferentPermutations) {
  const DistributedSampler sampler(1000, 0, 1);
  Rows sorted(1000);
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  const Rows first = sampler.epoch(0);
  Rows second = sampler.epoch(1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, sampler.epoch(0));
  std::sort(second.begin(), second.end());
  EXPECT_EQ(second, sorted);
}

TEST(DistributedSampler, EveryPlaceIsEquallyLikely) {
  std::map<Rows, int> seen;
  const DistributedSampler sampler(3, 0, 1);
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) {
    ++seen[sampler.epoch(epoch)];
  }
  ASSERT_EQ(seen.size(), 6U);
  for (const auto& [order, times] : seen) {
    EXPECT_GT(times, 850);  // five standard deviations from 1000; the seeds are fixed
    EXPECT_LT(times, 1150);
  }
}

TEST(DistributedSampler, NoRowsAndNoSuchRank) {
  EXPECT_EQ(DistributedSampler(0, 1, 2).epoch(0), Rows{});
  EXPECT_EQ(DistributedSampler(0, 1, 2).size(), 0U);
  EXPECT_EQ(test::error_of([] { DistributedSampler(5, 3, 3); }),
            "invalid_argument: DistributedSampler: rank 3 of 3; ranks are 0 to size - 1");
  EXPECT_EQ(test::error_of([] { DistributedSampler(5, 0, 0); }),
            "invalid_argument: DistributedSampler: rank 0 of 0; ranks are 0 to size - 1");
}

}  // namespace
}  // namespace kolo
