// SPDX-License-Identifier: Apache-2.0
//
// The smallest worlds: one rank, and ranks that know their place.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/info.hpp>
#include <kolo/objects.hpp>

namespace {

using kolo::ReduceOp;

TEST(World, OneRankNeedsNobody) {
  kolo::Context context;
  std::vector<float> x{1, 2, 3};
  kolo::allreduce({context, "x"}, kolo::view(x), kolo::AllreduceOptions{}.with_op(ReduceOp::average));
  EXPECT_EQ(x, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(context.rank(), 0);
  EXPECT_EQ(context.size(), 1);
}

TEST(World, RanksKnowTheirPlace) {
  std::atomic<int> seen{0};
  kolo::run_local(4, [&] {
    EXPECT_EQ(kolo::size(), 4);
    EXPECT_EQ(kolo::local_rank(), kolo::rank());
    EXPECT_EQ(kolo::local_size(), 4);
    EXPECT_EQ(kolo::cross_size(), 1);
    EXPECT_TRUE(kolo::is_homogeneous());
    seen.fetch_or(1 << kolo::rank());
  });
  EXPECT_EQ(seen.load(), 15);
}

}  // namespace
