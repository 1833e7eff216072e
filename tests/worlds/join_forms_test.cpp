// SPDX-License-Identifier: Apache-2.0
//
// Ranks join while the others use every form of a call: unnamed and in flight, prepared, several as one, and messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::Call;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::sentence_of;
using kolo::testing::worlds;

class JoinForms : public InWorlds {
 protected:
  JoinForms() : InWorlds({{"KOLO_SLOT_BYTES", "512"}, {"KOLO_SLOTS", "3"}, {"KOLO_FUSION_THRESHOLD", "2048"}}) {}
};

INSTANTIATE_TEST_SUITE_P(Worlds, JoinForms, worlds({{2, 0}, {4, 0}, {4, 2}, {3, 1}}, {{8, 0}, {8, 3}}), name_of);

/// What each rank has data for, by epoch.
int steps_of(int epoch, int rank, int ranks) {
  if (epoch % 3 == 0) return 2 * rank + 1;
  if (epoch % 3 == 1) return ranks - rank;
  return rank % 2 == 0 ? 3 : 0;
}

/// Rank r gives r + 1 in all of these.
struct Step {
  explicit Step(const std::vector<int>& left) : left(left) {
    for (const int rank : left) sum += rank + 1;
  }
  [[nodiscard]] int mine() const { return kolo::rank() + 1; }

  void unnamed() const {
    std::vector<std::vector<std::int32_t>> x;
    std::vector<kolo::Handle> open;
    for (const std::size_t length : {1, 300, 17, 1000, 2, 2, 2}) x.emplace_back(length, mine());
    for (std::vector<std::int32_t>& one : x) open.push_back(kolo::allreduce_async(kolo::view(one), ReduceOp::sum));
    const std::vector<std::int32_t> own(3, mine());
    kolo::Future<kolo::Tensor> gathered = kolo::allgather_async(kolo::const_view(own));
    std::vector<std::int32_t> told(5, mine());
    open.push_back(kolo::broadcast_async(kolo::view(told), left.back()));
    for (kolo::Handle& handle : open) handle.wait();
    for (const std::vector<std::int32_t>& one : x) EXPECT_EQ(one, std::vector<std::int32_t>(one.size(), sum));
    EXPECT_EQ(told, std::vector<std::int32_t>(5, left.back() + 1));
    const kolo::Tensor rows = gathered.get();
    const kolo::Span<const std::int32_t> all = rows.as<std::int32_t>();
    expect_rows({all.begin(), all.end()}, 3);
  }

  void prepared(kolo::Prepared& of_one, std::vector<std::int32_t>& one, kolo::Prepared& of_two,
                std::vector<std::vector<std::int32_t>>& two) const {
    one.assign(one.size(), mine());
    for (std::vector<std::int32_t>& x : two) x.assign(x.size(), mine());
    kolo::Handle first = of_one.start();
    of_two.start().wait();
    first.wait();
    EXPECT_EQ(one, std::vector<std::int32_t>(one.size(), sum));
    for (const std::vector<std::int32_t>& x : two) EXPECT_EQ(x, std::vector<std::int32_t>(x.size(), left.back() + 1));
  }

  void grouped() const {
    const std::vector<std::int32_t> a(4, mine()), b(70, mine());
    std::vector<std::int32_t> all_a(4 * left.size()), all_b(70 * left.size());
    kolo::grouped("gathers", {Call::allgather_into(kolo::const_view(a), kolo::view(all_a)),
                              Call::allgather_into(kolo::const_view(b), kolo::view(all_b))});
    expect_rows(all_a, 4);
    expect_rows(all_b, 70);
    std::vector<std::int32_t> c(9, mine()), d(800, mine());
    kolo::grouped("reductions", {Call::reduce(kolo::view(c), left.front()), Call::reduce(kolo::view(d), left.front())});
    const int wanted = kolo::rank() == left.front() ? sum : mine();
    EXPECT_EQ(c, std::vector<std::int32_t>(c.size(), wanted));
    EXPECT_EQ(d, std::vector<std::int32_t>(d.size(), wanted));
  }

  /// Around a ring of those that are left.
  void messages() const {
    const auto place = std::find(left.begin(), left.end(), kolo::rank()) - left.begin();
    const auto size = static_cast<std::ptrdiff_t>(left.size());
    const std::vector<std::int32_t> out(2000, mine());
    std::vector<std::int32_t> in(2000);
    const int next = left[static_cast<std::size_t>((place + 1) % size)];
    const int before = left[static_cast<std::size_t>((place + size - 1) % size)];
    kolo::Future<kolo::Received> received = kolo::recv_async(kolo::view(in), before);
    kolo::Handle sent = kolo::send_async(kolo::const_view(out), next);
    EXPECT_EQ(received.get().source, before);
    sent.wait();
    EXPECT_EQ(in, std::vector<std::int32_t>(2000, before + 1));
  }

  void expect_rows(const std::vector<std::int32_t>& all, std::size_t rows) const {
    ASSERT_EQ(all.size(), rows * left.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], left[i / rows] + 1);
  }

  std::vector<int> left;
  std::int32_t sum = 0;
};

TEST_P(JoinForms, EveryFormOfACall) {
  run([] {
    const int ranks = kolo::size();
    std::vector<std::int32_t> one(40);
    std::vector<std::vector<std::int32_t>> two{std::vector<std::int32_t>(3), std::vector<std::int32_t>(600)};
    kolo::Prepared of_one = kolo::prepare("one", Call::allreduce(kolo::view(one), ReduceOp::sum));
    for (int epoch = 0; epoch < 6; ++epoch) {
      int last = 0;
      for (int rank = 0; rank < ranks; ++rank)
        if (steps_of(epoch, rank, ranks) > steps_of(epoch, last, ranks)) last = rank;
      kolo::Prepared of_two = kolo::prepare(
          "two, by " + std::to_string(last),
          kolo::Call::grouped({Call::broadcast(kolo::view(two[0]), last), Call::broadcast(kolo::view(two[1]), last)}));
      for (int step = 0; step < steps_of(epoch, kolo::rank(), ranks); ++step) {
        std::vector<int> left;
        for (int rank = 0; rank < ranks; ++rank)
          if (steps_of(epoch, rank, ranks) > step) left.push_back(rank);
        const Step now(left);
        now.unnamed();
        if (left.back() == last) now.prepared(of_one, one, of_two, two);
        now.grouped();
        now.messages();
        EXPECT_EQ(kolo::allreduce(now.mine(), ReduceOp::sum), now.sum);
        kolo::end_step();
      }
      const int joined_last = kolo::join();
      EXPECT_EQ(steps_of(epoch, joined_last, ranks), steps_of(epoch, last, ranks));
      std::vector<int> all;
      for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
      Step(all).unnamed();
      Step(all).grouped();
    }
  });
}

/// How many ranks submit this: those that have not joined.
int number_of_present() {
  std::int32_t one = 1;
  kolo::allreduce("present", kolo::TensorView(&one, kolo::DType::int32, kolo::Shape{}), ReduceOp::sum);
  return one;
}

/// It fails on those that are left, and the next call goes on.
TEST(JoinForm, AnUnnamedCallThatNeedsAnAbsentRank) {
  kolo::run_local(3, [] {
    if (kolo::rank() == 1) {
      EXPECT_EQ(kolo::join(), 2);
      return;
    }
    EXPECT_EQ(number_of_present(), 2);
    std::vector<float> x(8, 2);
    kolo::Handle refused = kolo::broadcast_async(kolo::view(x), 1);
    std::vector<float> y(8, 1);
    kolo::Handle next = kolo::allreduce_async(kolo::view(y), ReduceOp::sum);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { refused.wait(); }),
              "unnamed call number 1: the broadcast cannot run, because its root, rank 1, has joined; give a "
              "root that has not joined.");
    next.wait();
    EXPECT_EQ(y, std::vector<float>(8, 2));
    if (kolo::rank() == 0) {
      kolo::join();
      return;
    }
    EXPECT_EQ(number_of_present(), 1);
    EXPECT_EQ(kolo::join(), 2);
  });
}

}  // namespace
