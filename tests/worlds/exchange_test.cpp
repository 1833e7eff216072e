// SPDX-License-Identifier: Apache-2.0
//
// alltoall, reduce_scatter and what gathers into the caller's memory, from end to end, on threads: many in flight, what
// is refused at the call, and what fails on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::sentence_of;
using kolo::testing::worlds;
using Splits = std::vector<std::int64_t>;

class Exchange : public InWorlds {
 protected:
  Exchange() : InWorlds({{"KOLO_SLOT_BYTES", "256"}}) {}
};

TEST_P(Exchange, RowsOfNothingAreCounted) {
  run([] {
    const auto size = static_cast<std::size_t>(kolo::size());
    const Splits splits(size, kolo::rank());
    const std::int64_t rows = kolo::rank() * std::int64_t{kolo::size()};
    const kolo::AlltoallResult result = kolo::alltoall(kolo::const_view<float>(nullptr, Shape{rows, 0}), splits);
    Splits wanted(size);
    std::iota(wanted.begin(), wanted.end(), 0);
    EXPECT_EQ(result.received_splits, wanted);
    EXPECT_EQ(result.output.shape(), (Shape{std::accumulate(wanted.begin(), wanted.end(), std::int64_t{0}), 0}));
  });
}

// ---------------------------------------------------------------- into memory of the caller

/// Rank r has r + 2t + 1 rows for rank t, which t knows; with a name and without.
TEST_P(Exchange, BothSidesMayKnowTheSplits) {
  run([] {
    Splits splits, received;
    std::vector<int> in, wanted;
    for (int other = 0; other < kolo::size(); ++other) {
      splits.push_back(kolo::rank() + 2 * other + 1);
      received.push_back(other + 2 * kolo::rank() + 1);
      in.insert(in.end(), static_cast<std::size_t>(splits.back()), 100 * kolo::rank() + other);
      wanted.insert(wanted.end(), static_cast<std::size_t>(received.back()), 100 * other + kolo::rank());
    }
    for (const bool named : {false, true}) {
      std::vector<int> out(wanted.size(), -1);
      const auto from = kolo::const_view(in.data(), in.size());
      const auto to = kolo::view(out.data(), out.size());
      if (named) {
        kolo::alltoall_known_into({kolo::world(), "known"}, from, to, splits, received);
      } else {
        kolo::alltoall_known_into_async(from, to, splits, received).wait();
      }
      EXPECT_EQ(out, wanted);
    }
  });
}

/// Each rank gives each a row, and rank 0 expects none of its own, and two of the next.
TEST_P(Exchange, ReceivedSplitsThatAreWrongFailThereAlone) {
  if (ranks() == 1) return;
  run([] {
    const auto size = static_cast<std::size_t>(kolo::size());
    const std::vector<int> in(size, kolo::rank());
    std::vector<int> out(size, -1);
    Splits received(size, 1);
    if (kolo::rank() == 0) received[0] = 0, received[1] = 2;
    const auto call = [&] {
      kolo::alltoall_known_into("known", kolo::const_view(in), kolo::view(out), Splits(size, 1), received);
    };
    if (kolo::rank() == 0) {
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, call),
                "the received splits of alltoall of \"known\" say 0 rows from rank 0, which gave 1");
      EXPECT_EQ(out, std::vector<int>(size, -1));
      return;
    }
    call();
    for (std::size_t from = 0; from < size; ++from) EXPECT_EQ(out[from], static_cast<int>(from));
  });
}

/// Every rank's input lies where the last one's rows come to: all but the last fail, and leave their memory alone.
TEST_P(Exchange, AGatherInTheWrongPlaceFailsThereAlone) {
  run([] {
    const int last = kolo::size() - 1;
    for (const bool named : {false, true}) {
      std::vector<int> out(static_cast<std::size_t>(kolo::size()) * 5, -1);
      std::fill(out.end() - 5, out.end(), kolo::rank());
      const std::vector<int> before = out;
      const auto call = [&] {
        const auto in = kolo::const_view(out.data() + last * 5, 5);
        named ? kolo::allgather_into("g", in, kolo::view(out)) : kolo::allgather_into(in, kolo::view(out));
      };
      if (kolo::rank() == last) {
        call();
        for (int i = 0; i < kolo::size() * 5; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], i / 5);
        continue;
      }
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, call),
                (named ? "the input of allgather of \"g\"" : "the input of this allgather") +
                    std::string(" lies at byte ") + std::to_string(last * 20) + " of its output, but rank " +
                    std::to_string(kolo::rank()) + "'s rows come to byte " + std::to_string(kolo::rank() * 20) +
                    "; give it there, or in memory of its own");
      EXPECT_EQ(out, before);
    }
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), kolo::size());
  });
}

TEST_P(Exchange, AScalarIsARowToGather) {
  run([] {
    const double loss = kolo::rank() + 0.5;
    const kolo::Tensor all = kolo::gather(kolo::const_view(&loss, Shape{}), kolo::size() - 1);
    const bool is_root = kolo::rank() == kolo::size() - 1;
    ASSERT_EQ(all.shape(), Shape{is_root ? kolo::size() : 0});
    for (int rank = 0; rank < all.elements(); ++rank)
      EXPECT_EQ(all.as<double>()[static_cast<std::size_t>(rank)], rank + 0.5);
  });
}

TEST_P(Exchange, AScalarIsARowToScatter) {
  run([] {
    const int root = kolo::size() - 1;
    std::vector<double> all(static_cast<std::size_t>(kolo::size()));
    std::iota(all.begin(), all.end(), 0.5);
    double own = -1;
    kolo::scatter_into(kolo::const_view(all), kolo::TensorView(&own, kolo::DType::float64, Shape{}), root);
    EXPECT_EQ(own, kolo::rank() + 0.5);
  });
}

TEST(ExchangeInPlace, AGatherToARootInTheWrongPlaceFailsThereAlone) {
  for (const bool named : {false, true}) {
    kolo::run_local(3, [&] {
      std::vector<float> out(6, static_cast<float>(kolo::rank()));
      const auto in = kolo::const_view(out.data(), 2);
      const auto call = [&] {
        named ? kolo::gather_into("x", in, kolo::view(out), 1) : kolo::gather_into(in, kolo::view(out), 1);
      };
      if (kolo::rank() != 1) return call();
      EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, call),
                (named ? "the input of gather of \"x\"" : "the input of this gather") +
                    std::string(" lies at byte 0 of its output, but rank 1's rows come to byte 8; give it there, or in "
                                "memory of its own"));
      EXPECT_EQ(out, std::vector<float>(6, 1));
    });
  }
}

// ---------------------------------------------------------------- reduce_scatter

/// Once the step is planned, its reduce-scatters are one batch, its all-to-alls another, and the sums are the same.
TEST_P(Exchange, AStepsCallsOfAKindShareABatch) {
  run([] {
    constexpr int kTensors = 20;
    const int size = kolo::size();
    std::vector<std::vector<int>> in(kTensors), sums(kTensors), given(kTensors), got(kTensors);
    for (int i = 0; i < kTensors; ++i) {
      const auto parts = static_cast<std::size_t>(i) * static_cast<std::size_t>(size);
      in[static_cast<std::size_t>(i)].assign(parts, kolo::rank() + i);
      given[static_cast<std::size_t>(i)].assign(parts, kolo::rank() * 100 + i);
    }
    for (int step = 0; step < 6; ++step) {
      std::vector<kolo::Handle> open;
      for (std::size_t i = 0; i < kTensors; ++i) {
        sums[i].assign(i, -1);
        got[i].assign(given[i].size(), -1);
        open.push_back(kolo::reduce_scatter_into_async("s" + std::to_string(i), kolo::const_view(in[i]),
                                                       kolo::view(sums[i]), ReduceOp::sum));
      }
      for (std::size_t i = 0; i < kTensors; ++i)
        open.push_back(
            kolo::alltoall_into_async("x" + std::to_string(i), kolo::const_view(given[i]), kolo::view(got[i])));
      kolo::wait_all(open);
      for (std::size_t i = 0; i < kTensors; ++i) {
        EXPECT_EQ(sums[i], std::vector<int>(i, size * static_cast<int>(i) + size * (size - 1) / 2));
        for (std::size_t k = 0; k < got[i].size(); ++k)
          ASSERT_EQ(got[i][k], static_cast<int>(k / i) * 100 + static_cast<int>(i));
      }
      kolo::end_step();
    }
    EXPECT_EQ(kolo::detail::counters().last_step_batches, 2U);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Exchange,
                         worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {5, 2}}, {{7, 0}, {8, 0}, {8, 3}}),
                         name_of);

}  // namespace
