// SPDX-License-Identifier: Apache-2.0
//
// Worlds of ranks as threads: the public API from end to end.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <string>
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

class Worlds : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  kolo::Options options() const {
    return kolo::Options{}
        .with_setting("KOLO_RANKS_PER_NODE", std::to_string(GetParam().second))
        .with_setting("KOLO_TIMEOUT_S", "60");
  }
  int ranks() const { return GetParam().first; }
};

TEST_P(Worlds, AllreduceSums) {
  kolo::run_local(
      ranks(),
      [&] {
        for (int step = 0; step < 5; ++step) {
          std::vector<double> x(1000);
          std::iota(x.begin(), x.end(), kolo::rank() + step);
          kolo::allreduce("x", kolo::view(x));
          for (std::size_t i = 0; i < x.size(); ++i) {
            const double wanted =
                kolo::size() * (static_cast<double>(i) + step) + kolo::size() * (kolo::size() - 1) / 2.0;
            ASSERT_EQ(x[i], wanted) << i;
          }
        }
        EXPECT_EQ(kolo::allreduce(kolo::rank(), ReduceOp::max), kolo::size() - 1);
      },
      options());
}

TEST_P(Worlds, ManyAsynchronousTensorsInAnyOrder) {
  kolo::run_local(
      ranks(),
      [&] {
        constexpr int kTensors = 50;
        for (int step = 0; step < 10; ++step) {
          std::vector<std::vector<float>> tensors(kTensors, std::vector<float>(100 + step));
          std::vector<kolo::Handle> handles;
          for (int k = 0; k < kTensors; ++k) {
            const int which = (k * 7 + kolo::rank() * 13) % kTensors;
            auto& tensor = tensors[static_cast<std::size_t>(which)];
            std::fill(tensor.begin(), tensor.end(), static_cast<float>(which + kolo::rank()));
            handles.push_back(kolo::allreduce_async("t" + std::to_string(which), kolo::view(tensor)));
          }
          kolo::wait_all(handles);
          for (int which = 0; which < kTensors; ++which) {
            const auto wanted = static_cast<float>(kolo::size() * which + kolo::size() * (kolo::size() - 1) / 2);
            for (const float x : tensors[static_cast<std::size_t>(which)]) ASSERT_EQ(x, wanted);
          }
          kolo::end_step();
        }
      },
      options());
}

TEST_P(Worlds, BroadcastAllgatherBarrierObjects) {
  kolo::run_local(
      ranks(),
      [&] {
        for (int root = 0; root < kolo::size(); ++root) {
          std::vector<int> x(777, kolo::rank() == root ? root + 5 : -1);
          kolo::broadcast("b", kolo::view(x), root);
          EXPECT_EQ(x, std::vector<int>(777, root + 5));
        }
        std::vector<std::int64_t> rows(static_cast<std::size_t>(2 * kolo::rank()), kolo::rank());
        const kolo::Tensor all = kolo::allgather("g", kolo::const_view(rows.data(), kolo::Shape{kolo::rank(), 2}));
        std::vector<std::int64_t> wanted;
        for (int rank = 0; rank < kolo::size(); ++rank) wanted.insert(wanted.end(), 2 * rank, rank);
        const auto got = all.as<std::int64_t>();
        EXPECT_EQ(std::vector<std::int64_t>(got.begin(), got.end()), wanted);
        kolo::barrier();
        EXPECT_EQ(kolo::broadcast_object(std::string("hello ") + std::to_string(kolo::rank()), kolo::size() - 1),
                  "hello " + std::to_string(kolo::size() - 1));
        const std::vector<int> ranks = kolo::allgather_object(kolo::rank() * 3);
        for (int rank = 0; rank < kolo::size(); ++rank) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)], rank * 3);
      },
      options());
}

INSTANTIATE_TEST_SUITE_P(Shapes, Worlds,
                         testing::Values(std::pair{1, 0}, std::pair{2, 0}, std::pair{3, 0}, std::pair{4, 0},
                                         std::pair{8, 0}, std::pair{2, 1}, std::pair{4, 2}, std::pair{4, 1},
                                         std::pair{5, 2}, std::pair{8, 3}),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) +
                                  "pernode";
                         });

}  // namespace
