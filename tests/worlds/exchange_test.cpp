// SPDX-License-Identifier: Apache-2.0
//
// alltoall, reduce_scatter and what gathers into the caller's memory, from end to end, on threads: many in flight, what
// is refused at the call, and what fails on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/counters.hpp>
#include <kolo/info.hpp>

#include "errors.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::testing::sentence_of;
using Splits = std::vector<std::int64_t>;

class Exchange : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  static kolo::Options options() {
    return kolo::Options{}
        .with_setting("KOLO_RANKS_PER_NODE", std::to_string(GetParam().second))
        .with_setting("KOLO_SLOT_BYTES", "256")
        .with_setting("KOLO_TIMEOUT_S", "60");
  }
  template <class Body>
  static void run(Body&& body) {
    kolo::run_local(GetParam().first, std::forward<Body>(body), options());
  }
};

template <class T>
std::vector<T> contents(const kolo::Tensor& tensor) {
  const auto elements = tensor.as<T>();
  return {elements.begin(), elements.end()};
}

// ---------------------------------------------------------------- alltoall

/// Rows of two numbers: who sends them, and to whom and which they are.
std::vector<int> row(int from, int to, std::int64_t which) { return {from, to * 1000 + static_cast<int>(which)}; }
void append(std::vector<int>& to, const std::vector<int>& from) { to.insert(to.end(), from.begin(), from.end()); }

/// What `from` sends to `to`: nothing at times, much at others.
std::int64_t rows_between(int from, int to, int step) {
  const int mixed = from * 7 + to * 3 + step;
  return mixed % 4 == 0 ? 0 : mixed % 5 == 0 ? 150 : mixed % 7;
}

struct Exchanged {
  Splits splits;
  Splits received;
  std::vector<int> sent;
  std::vector<int> wanted;
  kolo::ConstTensorView view() const {
    return kolo::const_view(sent.data(), Shape{static_cast<std::int64_t>(sent.size()) / 2, 2});
  }
};

template <class Rows>
Exchanged exchange_of(Rows&& rows) {
  Exchanged all;
  const int rank = kolo::rank();
  for (int other = 0; other < kolo::size(); ++other) {
    all.splits.push_back(rows(rank, other));
    all.received.push_back(rows(other, rank));
    for (std::int64_t i = 0; i < all.splits.back(); ++i) append(all.sent, row(rank, other, i));
    for (std::int64_t i = 0; i < all.received.back(); ++i) append(all.wanted, row(other, rank, i));
  }
  return all;
}

void expect_result(const kolo::AlltoallResult& result, const Exchanged& all) {
  EXPECT_EQ(contents<int>(result.output), all.wanted);
  EXPECT_EQ(result.received_splits, all.received);
  EXPECT_EQ(result.output.shape(), (Shape{static_cast<std::int64_t>(all.wanted.size()) / 2, 2}));
}

TEST_P(Exchange, ManyAlltoallsInFlightBesideReductions) {
  run([] {
    constexpr int kCalls = 8;
    for (int step = 0; step < 4; ++step) {
      std::vector<Exchanged> all;
      std::vector<kolo::Future<kolo::AlltoallResult>> futures;
      std::vector<std::vector<float>> sums(kCalls, std::vector<float>(100, 1));
      std::vector<kolo::Handle> handles;
      for (int k = 0; k < kCalls; ++k)
        all.push_back(exchange_of([&](int from, int to) { return rows_between(from, to, step + k); }));
      for (int i = 0; i < kCalls; ++i) {
        const auto k = static_cast<std::size_t>((i * 3 + kolo::rank()) % kCalls);
        futures.push_back(kolo::alltoall_async("x" + std::to_string(k), all[k].view(), all[k].splits));
        handles.push_back(kolo::allreduce_async("y" + std::to_string(k), kolo::view(sums[k])));
      }
      kolo::wait_all(handles);
      for (int i = 0; i < kCalls; ++i) {
        const auto k = static_cast<std::size_t>((i * 3 + kolo::rank()) % kCalls);
        expect_result(futures[static_cast<std::size_t>(i)].get(), all[k]);
        EXPECT_EQ(sums[k], std::vector<float>(100, static_cast<float>(kolo::size())));
      }
      kolo::end_step();
    }
  });
}

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

/// Rank r has r * unit numbers: rank 0 none.
TEST_P(Exchange, GathersInPlace) {
  run([] {
    const int rank = kolo::rank();
    for (const std::size_t unit : {1U, 40U, 700U, 9'000U}) {
      std::vector<int> all;
      for (int other = 0; other < kolo::size(); ++other)
        all.insert(all.end(), unit * static_cast<std::size_t>(other), other);
      const std::size_t mine = unit * static_cast<std::size_t>(rank);
      const std::size_t place = mine * static_cast<std::size_t>(rank - (rank > 0 ? 1 : 0)) / 2;
      std::vector<int> out(all.size());
      const auto own = [&] {
        std::fill(out.begin(), out.end(), -1);
        std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(place), mine, rank);
        return kolo::const_view(out.data() + place, mine);
      };
      kolo::allgather_into(own(), kolo::view(out));
      EXPECT_EQ(out, all);
      kolo::allgather_into("g", own(), kolo::view(out));
      EXPECT_EQ(out, all);
      kolo::allgather_into_async({kolo::current_context(), "g"}, own(), kolo::view(out)).wait();
      EXPECT_EQ(out, all);
    }
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
                         testing::ValuesIn(kolo::testing::and_unless_sanitized<std::pair<int, int>>(
                             {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {5, 2}}, {{7, 0}, {8, 0}, {8, 3}})),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) +
                                  "pernode";
                         });

// ---------------------------------------------------------------- at the call

TEST(ExchangeAtTheCall, WhatIsRefused) {
  kolo::run_local(2, [] {
    const std::vector<float> x(6, 1);
    std::vector<float> out(6);
    std::vector<double> wide(6);
    const auto in = kolo::const_view(x.data(), Shape{3, 2});
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    EXPECT_EQ(refused([&] { (void)kolo::alltoall("x", in); }),
              "alltoall of \"x\": its 3 rows cannot be divided evenly among 2 ranks; give splits");
    EXPECT_EQ(refused([&] {
                (void)kolo::alltoall(in, {1, 1, 1});
              }),
              "unnamed alltoall with splits: 3 splits were given for 2 ranks; give one for each");
    EXPECT_EQ(refused([&] {
                (void)kolo::alltoall("x", in, {4, -1});
              }),
              "alltoall with splits of \"x\": a split is -1; they must not be negative");
    EXPECT_EQ(refused([&] {
                (void)kolo::alltoall_async("x", in, {0, 2});
              }),
              "alltoall with splits of \"x\": the splits sum up to 2, but the input has 3 rows; all of them must go "
              "somewhere");
    EXPECT_EQ(refused([&] {
                (void)kolo::alltoall("x", in, {INT64_MAX, INT64_MAX});
              }),
              "alltoall with splits of \"x\": the splits sum up to more than any tensor's rows, but the input has 3 "
              "rows; all of them must go somewhere");
    EXPECT_EQ(refused([&] {
                (void)kolo::alltoall("x", kolo::const_view(x.data(), Shape{}), {1, 0});
              }),
              "alltoall with splits of \"x\": a scalar has no rows to send; give a tensor of at least one dimension");
    EXPECT_EQ(refused([&] { kolo::alltoall_into("x", kolo::const_view(x), kolo::view(wide)); }),
              "alltoall of \"x\": the input is float32, but the output is float64; they must agree");
    EXPECT_EQ(refused([&] { kolo::alltoall_into("x", kolo::const_view(x), kolo::view(out.data(), 5)); }),
              "alltoall of \"x\": the input has 6 elements, but the output has 5; they must agree");
    EXPECT_EQ(
        refused([&] { kolo::alltoall_into("x", kolo::const_view(out.data(), 4), kolo::view(out.data() + 2, 4)); }),
        "alltoall of \"x\": the input and the output overlap; give an output of its own");
    EXPECT_EQ(refused([&] { (void)kolo::reduce_scatter("x", kolo::const_view(x.data(), Shape{})); }),
              "reduce_scatter of \"x\": a scalar has no rows; give a tensor of at least one dimension");
    EXPECT_EQ(refused([&] { kolo::reduce_scatter_into("x", in, kolo::view(out)); }),
              kolo::rank() == 0
                  ? "reduce_scatter of \"x\": the output has shape [6], but rank 0's part of the input's [3, 2] is [2, "
                    "2]"
                  : "reduce_scatter of \"x\": the output has shape [6], but rank 1's part of the input's [3, 2] is [1, "
                    "2]");
    EXPECT_EQ(refused([&] {
                kolo::reduce_scatter_into("x", kolo::const_view(out.data(), 4), kolo::view(out.data() + 1, 2));
              }),
              "reduce_scatter of \"x\": the input and the output overlap; give an output of its own, or exactly this "
              "rank's rows of the input");
    const std::vector<int> n(4);
    EXPECT_EQ(refused([&] { (void)kolo::reduce_scatter("x", kolo::const_view(n), ReduceOp::average); }),
              "reduce_scatter of \"x\": the average of int32 is not defined; use ReduceOp::sum and divide, or a "
              "floating-point type");
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

// ---------------------------------------------------------------- after the call

TEST(ExchangeResults, AnOutputOfTheWrongSizeFailsOnThatRankAlone) {
  for (const int ranks_per_node : {0, 1, 2}) {
    kolo::run_local(
        3,
        [] {
          const int rank = kolo::rank();
          for (int round = 0; round < 3; ++round) {
            const std::vector<int> in{rank, rank, rank};
            std::vector<int> out(rank == 1 ? 2 : 3, -1);
            kolo::Handle handle = kolo::alltoall_into_async("a", kolo::const_view(in), kolo::view(out), {1, 1, 1});
            if (rank == 1) {
              EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { handle.wait(); }),
                        "the output of alltoall of \"a\" has 2 elements, but the ranks together gave this one 3");
              EXPECT_EQ(out, std::vector<int>(2, -1));
            } else {
              handle.wait();
              EXPECT_EQ(out, (std::vector<int>{0, 1, 2}));
            }
          }
        },
        kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", std::to_string(ranks_per_node)));
  }
}

TEST(ExchangeResults, AreTakenOnce) {
  kolo::Context context;
  const std::vector<float> x{1, 2};
  kolo::Future<kolo::AlltoallResult> exchanged = kolo::alltoall_async({context, "x"}, kolo::const_view(x));
  const auto [output, received] = exchanged.get();
  EXPECT_EQ(contents<float>(output), x);
  EXPECT_EQ(received, Splits{2});
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)exchanged.get(); }),
            "the result of this operation has been taken already");
  kolo::Future<kolo::Tensor> reduced = kolo::reduce_scatter_async({context, "x"}, kolo::const_view(x));
  EXPECT_EQ(contents<float>(reduced.get()), x);
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { (void)reduced.get(); }),
            "the result of this operation has been taken already");
}

}  // namespace
