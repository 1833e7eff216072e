// SPDX-License-Identifier: Apache-2.0
//
// Gathers, scatters and all-to-alls with splits of several tensors in flight: once the step is planned, those of a kind
// are one batch, whose lengths travel together; each tensor has an outcome of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/detail/counters.hpp>
#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::Call;
using kolo::ErrorCode;
using kolo::Shape;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::sentence_of;
using kolo::testing::worlds;
using Numbers = std::vector<std::int32_t>;

class UnevenBatches : public InWorlds {
 protected:
  UnevenBatches() : InWorlds({{"KOLO_SLOT_BYTES", "256"}}) {}
};
INSTANTIATE_TEST_SUITE_P(Worlds, UnevenBatches, worlds({{1, 0}, {2, 0}, {3, 0}, {4, 2}, {3, 1}}, {{8, 0}, {8, 3}}),
                         name_of);

/// How many rows a rank has of a tensor in a step: none, few, and many; of every fifth tensor nobody has any.
int rows_of(int step, int tensor, int rank) {
  if (tensor % 5 == 3) return 0;
  const int drawn = (step * 31 + tensor * 17 + rank * 7) % 12;
  return drawn < 2 ? 0 : drawn == 11 ? 150 : drawn;
}

/// Rows of two numbers.
Numbers rows(int step, int tensor, int rank) {
  Numbers all;
  for (int row = 0; row < rows_of(step, tensor, rank); ++row)
    all.insert(all.end(), {rank * 1000 + row, tensor * 1000 + step});
  return all;
}
kolo::ConstTensorView view_of(const Numbers& numbers) {
  return kolo::const_view(numbers.data(), Shape{static_cast<std::int64_t>(numbers.size()) / 2, 2});
}
Numbers rows_of_all(int step, int tensor, const std::vector<int>& ranks) {
  Numbers all;
  for (const int rank : ranks) {
    const Numbers theirs = rows(step, tensor, rank);
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  return all;
}
std::vector<int> everybody() {
  std::vector<int> ranks(static_cast<std::size_t>(kolo::size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}
Numbers numbers_of(const kolo::Tensor& tensor) {
  const kolo::Span<const std::int32_t> numbers = tensor.as<std::int32_t>();
  return {numbers.begin(), numbers.end()};
}

TEST_P(UnevenBatches, GathersOfRowsThatDiffer) {
  run([] {
    constexpr int kTensors = 12;
    const int root = kolo::size() - 1;
    const std::vector<double> fixed(3, kolo::rank());
    std::vector<double> prepared_out(static_cast<std::size_t>(kolo::size()) * 3), a = prepared_out, b = prepared_out;
    const auto gather_to = [&](std::vector<double>& out) {
      return Call::allgather_into(kolo::const_view(fixed), kolo::view(out));
    };
    kolo::Prepared one = kolo::prepare("prepared", gather_to(prepared_out));
    kolo::Prepared two = kolo::prepare("two", kolo::Call::grouped({gather_to(a), gather_to(b)}));
    std::vector<double> wanted;
    for (int rank = 0; rank < kolo::size(); ++rank) wanted.insert(wanted.end(), 3, rank);
    for (int step = 0; step < 6; ++step) {
      for (std::vector<double>* out : {&prepared_out, &a, &b}) out->assign(out->size(), -1);
      std::vector<Numbers> mine;
      std::vector<kolo::Future<kolo::Tensor>> to_all, to_root;
      for (int tensor = 0; tensor < kTensors; ++tensor) mine.push_back(rows(step, tensor, kolo::rank()));
      for (int tensor = 0; tensor < kTensors; ++tensor)
        to_all.push_back(
            kolo::allgather_async("a" + std::to_string(tensor), view_of(mine[static_cast<std::size_t>(tensor)])));
      kolo::Handle first = one.start();
      kolo::Handle second = two.start();
      for (int tensor = 0; tensor < kTensors; ++tensor)
        to_root.push_back(kolo::gather_async(
            "r" + std::to_string(tensor), view_of(mine[static_cast<std::size_t>(tensor)]), tensor % 2 == 0 ? root : 0));
      for (int tensor = kTensors - 1; tensor >= 0; --tensor) {
        const Numbers all = rows_of_all(step, tensor, everybody());
        const int gets = tensor % 2 == 0 ? root : 0;
        EXPECT_EQ(numbers_of(to_root[static_cast<std::size_t>(tensor)].get()), kolo::rank() == gets ? all : Numbers());
        EXPECT_EQ(numbers_of(to_all[static_cast<std::size_t>(tensor)].get()), all) << tensor << " in step " << step;
      }
      first.wait();
      second.wait();
      for (const std::vector<double>* out : {&prepared_out, &a, &b}) EXPECT_EQ(*out, wanted);
      kolo::end_step();
    }
    EXPECT_EQ(kolo::detail::counters().last_step_batches, 2U);
  });
}

/// Rank r gives rank s so many rows of tensor t.
std::vector<std::int64_t> splits_of(int step, int tensor, int from) {
  std::vector<std::int64_t> splits;
  for (int to = 0; to < kolo::size(); ++to) splits.push_back(rows_of(step + to, tensor, from));
  return splits;
}
/// What these are: each row says whose it is, and which.
Numbers dealt(const std::vector<std::int64_t>& splits, int from) {
  Numbers all;
  for (std::size_t to = 0; to < splits.size(); ++to) {
    for (std::int64_t row = 0; row < splits[to]; ++row)
      all.insert(all.end(), {from * 1000 + static_cast<std::int32_t>(to), static_cast<std::int32_t>(row)});
  }
  return all;
}
Numbers received_from(const std::vector<std::int64_t>& splits, int from) {
  const auto own = static_cast<std::size_t>(kolo::rank());
  std::vector<std::int64_t> only(splits.size(), 0);
  only[own] = splits[own];
  return dealt(only, from);
}
kolo::TensorView room_in(Numbers& numbers) {
  return {numbers.data(), kolo::DType::int32, Shape{static_cast<std::int64_t>(numbers.size()) / 2, 2}};
}

TEST_P(UnevenBatches, ScattersAndAlltoallsOfRowsThatDiffer) {
  run([] {
    constexpr std::size_t kTensors = 9;
    for (int step = 0; step < 6; ++step) {
      std::deque<Numbers> memory;
      std::vector<std::vector<std::int64_t>> splits;
      std::vector<kolo::Handle> open;
      std::vector<std::pair<Numbers*, Numbers>> expected;
      std::vector<kolo::Future<kolo::AlltoallResult>> exchanged;
      for (std::size_t i = 0; i < kTensors; ++i) {
        const int tensor = static_cast<int>(i);
        const int root = tensor % kolo::size();
        const std::vector<std::int64_t> of_root = splits_of(step, tensor, root);
        const Numbers& in = memory.emplace_back(dealt(of_root, root));
        Numbers wanted = received_from(of_root, root);
        Numbers& out = memory.emplace_back(wanted.size(), -1);
        const auto given = kolo::rank() == root ? std::optional(view_of(in)) : std::nullopt;
        open.push_back(kolo::scatter_into_async("s" + std::to_string(i), given, room_in(out), root, of_root));
        expected.emplace_back(&out, std::move(wanted));
      }
      for (std::size_t i = 0; i < kTensors; ++i) {
        splits.push_back(splits_of(step, static_cast<int>(i), kolo::rank()));
        const Numbers& in = memory.emplace_back(dealt(splits.back(), kolo::rank()));
        exchanged.push_back(kolo::alltoall_async("x" + std::to_string(i), view_of(in), splits.back()));
      }
      kolo::wait_all(open);
      for (const auto& [out, wanted] : expected) EXPECT_EQ(*out, wanted) << "step " << step;
      for (std::size_t i = 0; i < kTensors; ++i) {
        Numbers wanted;
        std::vector<std::int64_t> received;
        for (int from = 0; from < kolo::size(); ++from) {
          const Numbers theirs = received_from(splits_of(step, static_cast<int>(i), from), from);
          wanted.insert(wanted.end(), theirs.begin(), theirs.end());
          received.push_back(static_cast<std::int64_t>(theirs.size()) / 2);
        }
        const kolo::AlltoallResult got = exchanged[i].get();
        EXPECT_EQ(numbers_of(got.output), wanted) << i << " in step " << step;
        EXPECT_EQ(got.received_splits, received);
      }
      kolo::end_step();
    }
    EXPECT_EQ(kolo::detail::counters().last_step_batches, 2U);
  });
}

/// Three calls in flight; what they are is the caller's.
struct Three {
  /// Starts call `which` with this output.
  std::function<kolo::Handle(const std::string& name, Numbers& out)> start;
  std::string kind;
  Numbers wanted;
  std::string sentence;  ///< of the rank whose output has a number too many
};

TEST_P(UnevenBatches, AnOutputThatDoesNotFitFailsItsTensorAlone) {
  run([] {
    const int size = kolo::size();
    const int last = size - 1;
    const Numbers mine(2, kolo::rank());
    const Numbers of_root(static_cast<std::size_t>(size) * 2, 7);
    Numbers all;
    for (int rank = 0; rank < size; ++rank) all.insert(all.end(), 2, rank);
    const std::vector<std::int64_t> twos(static_cast<std::size_t>(size), 2);
    const std::string count = std::to_string(2 * size), more = std::to_string(2 * size + 1);
    const std::vector<Three> kinds = {
        {[&](const std::string& name, Numbers& out) {
           return kolo::allgather_into_async(name, kolo::const_view(mine), kolo::view(out));
         },
         "allgather", all, "has " + more + " elements, but the ranks together gave " + count},
        {[&](const std::string& name, Numbers& out) {
           const auto room = kolo::rank() == last ? std::optional(kolo::view(out)) : std::nullopt;
           return kolo::gather_into_async(name, kolo::const_view(mine), room, last);
         },
         "gather", kolo::rank() == last ? all : Numbers(all.size(), -1),
         "has " + more + " elements, but the ranks together gave " + count},
        {[&](const std::string& name, Numbers& out) {
           return kolo::scatter_into_async(name, kolo::const_view(of_root), kolo::view(out), 0, twos);
         },
         "scatter", Numbers(2, 7), "has 3 elements, but the root gave this rank 2"},
        {[&](const std::string& name, Numbers& out) {
           return kolo::alltoall_into_async(name, kolo::const_view(all), kolo::view(out), twos);
         },
         "alltoall",
         [&] {
           Numbers wanted;
           for (int from = 0; from < size; ++from) wanted.insert(wanted.end(), 2, kolo::rank());
           return wanted;
         }(),
         "has " + more + " elements, but the ranks together gave this one " + count}};
    for (const Three& kind : kinds) {
      for (int step = 0; step < 6; ++step) {
        // In the last two steps one has a number too many there: the first, then the one in the middle.
        const bool fails = step >= 4 && kolo::rank() == last;
        const std::size_t failing = step == 4 ? 0 : 1;
        std::vector<Numbers> out(3, Numbers(kind.wanted.size(), -1));
        if (fails) out[failing].push_back(-1);
        std::vector<kolo::Handle> open;
        for (std::size_t i = 0; i < 3; ++i) open.push_back(kind.start(kind.kind + std::to_string(i), out[i]));
        for (const std::size_t i : {0U, 2U, 1U}) {
          if (fails && i == failing) {
            EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { open[i].wait(); }),
                      "the output of " + kind.kind + " of \"" + kind.kind + std::to_string(i) + "\" " + kind.sentence);
            EXPECT_EQ(out[i], Numbers(kind.wanted.size() + 1, -1));
          } else {
            open[i].wait();
            EXPECT_EQ(out[i], kind.wanted) << kind.kind << i << " in step " << step;
          }
        }
        kolo::end_step();
        if (step >= 3) {
          EXPECT_EQ(kolo::detail::counters().last_step_batches, 1U) << kind.kind;
        }
      }
    }
  });
}

/// Of a planned step whose tensors are one batch. The group fails as one.
TEST_P(UnevenBatches, RowsThatDisagreeFailTheirTensorAlone) {
  run([] {
    const int last = kolo::size() - 1;
    const Numbers mine(2, kolo::rank());
    Numbers all;
    for (int rank = 0; rank < kolo::size(); ++rank) all.insert(all.end(), 2, rank);
    for (int step = 0; step < 8; ++step) {
      const bool fails = last > 0 && step == 4;
      const auto own = [&](bool differs) {
        const std::int64_t columns = fails && differs && kolo::rank() == last ? 1 : 2;
        return kolo::const_view(mine.data(), Shape{2 / columns, columns});
      };
      std::vector<Numbers> out(2, Numbers(all.size(), -1));
      std::vector<kolo::Future<kolo::Tensor>> open;
      for (const char* name : {"a", "b", "c"}) open.push_back(kolo::allgather_async(name, own(*name == 'b')));
      kolo::Handle group = kolo::grouped_async(
          "d", {Call::allgather_into(own(false), room_in(out[0])), Call::allgather_into(own(true), room_in(out[1]))});
      for (const std::size_t i : {2U, 1U, 0U}) {
        if (fails && i == 1) {
          const std::string end = "; [*, 1] on rank " + std::to_string(last) +
                                  ". The operation did not run; submit the same on every rank.";
          EXPECT_TRUE(kolo::testing::has(
              sentence_of(ErrorCode::mismatch, [&] { (void)open[i].get(); }),
              {"tensor \"b\" of allgather: ranks disagree about shape: [*, 2] on rank", end.c_str()}));
        } else {
          EXPECT_EQ(numbers_of(open[i].get()), all) << i << " in step " << step;
        }
      }
      if (fails) {
        EXPECT_TRUE(kolo::testing::has(sentence_of(ErrorCode::mismatch, [&] { group.wait(); }), {"\"d\""}));
        EXPECT_EQ(out, std::vector<Numbers>(2, Numbers(all.size(), -1)));
      } else {
        group.wait();
        EXPECT_EQ(out, std::vector<Numbers>(2, all)) << "step " << step;
      }
      kolo::end_step();
    }
  });
}

/// The last copy goes while they are in flight; each call's memory goes when that call is over.
TEST_P(UnevenBatches, CallsOutliveTheGroup) {
  run([] {
    std::vector<Numbers> mine, out;
    for (int tensor = 0; tensor < 50; ++tensor) {
      mine.emplace_back(static_cast<std::size_t>(tensor % 7 * 30), kolo::rank() + tensor);
      out.emplace_back(mine.back().size() * static_cast<std::size_t>(kolo::size()), -1);
    }
    std::vector<kolo::Handle> open;
    {
      const kolo::Group group = kolo::Group::of(everybody());
      for (std::size_t i = 0; i < mine.size(); ++i)
        open.push_back(kolo::allgather_into_async(group, kolo::const_view(mine[i]), kolo::view(out[i])));
    }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      open[i].wait();
      Numbers wanted;
      for (int rank = 0; rank < kolo::size(); ++rank)
        wanted.insert(wanted.end(), mine[i].size(), rank + static_cast<int>(i));
      ASSERT_EQ(out[i], wanted);
      mine[i] = Numbers();  // given back while the batch is under way
      out[i] = Numbers();
    }
  });
}

TEST_P(UnevenBatches, WhileARankHasJoined) {
  run([] {
    for (int absent = 0; absent < kolo::size(); ++absent) {
      std::vector<int> left = everybody();
      left.erase(left.begin() + absent);
      for (int step = 0; step < 5 && kolo::rank() != absent; ++step) {
        const int root = left.back();
        std::vector<Numbers> mine;
        for (int tensor = 0; tensor < 8; ++tensor) mine.push_back(rows(step, tensor, kolo::rank()));
        std::vector<kolo::Future<kolo::Tensor>> named, unnamed, to_root;
        for (std::size_t i = 0; i < mine.size(); ++i) {
          named.push_back(kolo::allgather_async("n" + std::to_string(i), view_of(mine[i])));
          unnamed.push_back(kolo::allgather_async(view_of(mine[i])));
          to_root.push_back(
              kolo::gather_async("g" + std::to_string(root * 10) + std::to_string(i), view_of(mine[i]), root));
        }
        std::vector<Numbers> out;
        for (int tensor = 0; tensor < 8; ++tensor) out.emplace_back(rows_of_all(step, tensor, left).size(), -1);
        std::vector<Call> calls;
        for (std::size_t i = 0; i < mine.size(); ++i)
          calls.push_back(Call::allgather_into(view_of(mine[i]), room_in(out[i])));
        kolo::grouped("together", calls);
        for (std::size_t i = 0; i < mine.size(); ++i) {
          const Numbers all = rows_of_all(step, static_cast<int>(i), left);
          EXPECT_EQ(numbers_of(named[i].get()), all);
          EXPECT_EQ(numbers_of(unnamed[i].get()), all);
          EXPECT_EQ(numbers_of(to_root[i].get()), kolo::rank() == root ? all : Numbers());
          EXPECT_EQ(out[i], all);
        }
      }
      (void)kolo::join();
    }
  });
}

/// However many, a batch has 64 at most.
TEST_P(UnevenBatches, UnnamedGathersInFlight) {
  run([] {
    constexpr int kCalls = 300;
    const std::uint64_t before = kolo::metrics().batches;
    std::vector<Numbers> mine;
    for (int call = 0; call < kCalls; ++call) mine.emplace_back(static_cast<std::size_t>(2 * (kolo::rank() + 1)), call);
    std::vector<kolo::Future<kolo::Tensor>> open;
    for (const Numbers& numbers : mine) open.push_back(kolo::allgather_async(view_of(numbers)));
    std::size_t rows_in_all = 0;
    for (int rank = 0; rank < kolo::size(); ++rank) rows_in_all += static_cast<std::size_t>(rank) + 1;
    for (int call = 0; call < kCalls; ++call)
      ASSERT_EQ(numbers_of(open[static_cast<std::size_t>(call)].get()), Numbers(2 * rows_in_all, call));
    EXPECT_GE(kolo::metrics().batches - before, static_cast<std::uint64_t>((kCalls + 63) / 64));
  });
}

}  // namespace
