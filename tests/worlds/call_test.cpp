// SPDX-License-Identifier: Apache-2.0
//
// Collectives as values: prepared ones of every kind, step after step, and what is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/operation.hpp"
#include "tests/support/random.hpp"

namespace {

using kolo::Call;
using kolo::DType;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::InFlight;
using kolo::testing::Kind;
using kolo::testing::Operation;
using kolo::testing::sentence_of;

/// Ranks, and ranks per (virtual) node.
class Calls : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  template <class Body>
  static void run(Body&& body) {
    kolo::run_local(GetParam().first, std::forward<Body>(body),
                    kolo::Options{}
                        .with_setting("KOLO_RANKS_PER_NODE", std::to_string(GetParam().second))
                        .with_setting("KOLO_SLOT_BYTES", "256")
                        .with_setting("KOLO_TIMEOUT_S", "100"));
  }
};
INSTANTIATE_TEST_SUITE_P(Worlds, Calls,
                         testing::Values(std::pair{1, 0}, std::pair{2, 0}, std::pair{3, 0}, std::pair{4, 2},
                                         std::pair{3, 2}, std::pair{2, 1}),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) +
                                  "pernode";
                         });

/// What can be prepared, of every kind.
std::vector<std::unique_ptr<InFlight>> all_prepared(const kolo::Group& group, kolo::testing::Random& own) {
  std::vector<std::unique_ptr<InFlight>> all;
  for (int number = 0; number < kolo::testing::kKinds; ++number) {
    for (const std::int64_t length : {0, 5, 300}) {
      Operation operation;
      operation.kind = static_cast<Kind>(number);
      operation.name = std::to_string(number) + " " + std::to_string(length);
      operation.dtype = number % 2 == 0 ? DType::float32 : DType::int16;
      operation.root = number % kolo::size(group);
      operation.lengths = {length};
      if (operation.kind == Kind::grouped) operation.lengths = {length, 7};
      if (differs_by_rank(operation.kind))
        operation.lengths.resize(static_cast<std::size_t>(kolo::size(group)), length + 2);
      if (operation.kind == Kind::alltoall) continue;
      operation.prepared = true;
      auto one = std::make_unique<InFlight>(group, std::move(operation), own);
      if (one->can_prepare()) all.push_back(std::move(one));
    }
  }
  return all;
}

TEST_P(Calls, PreparedOfEveryKind) {
  run([] {
    kolo::testing::Random own = kolo::testing::random_of(4, static_cast<std::uint64_t>(kolo::rank()));
    std::vector<kolo::Group> groups{kolo::world()};
    if (kolo::size() > 2 && kolo::rank() != 1) {
      std::vector<int> members;
      for (int rank = kolo::size() - 1; rank >= 0; --rank)
        if (rank != 1) members.push_back(rank);
      groups.push_back(kolo::Group::of(members));
    }
    for (const kolo::Group& group : groups) {
      const auto all = all_prepared(group, own);
      for (const auto& one : all) one->prepare();
      for (int step = 0; step < 6; ++step) {
        for (const auto& one : all) one->submit(step);
        for (const auto& one : all) {
          one->handle().wait();
          EXPECT_NO_THROW(one->check()) << describe(one->operation()) << " on rank " << kolo::rank();
        }
        kolo::end_step(group);
      }
    }
  });
}

/// A handle that is kept makes the request take another operation.
TEST_P(Calls, APreparedOneWhoseHandleIsKept) {
  run([] {
    const std::vector<int> in(3, kolo::rank());
    std::vector<int> out(in.size() * static_cast<std::size_t>(kolo::size()), -1);
    kolo::Prepared gather = kolo::prepare("g", Call::allgather_into(kolo::const_view(in), kolo::view(out)));
    std::vector<kolo::Handle> kept;
    for (int call = 0; call < 5; ++call) {
      out.assign(out.size(), -1);
      kept.push_back(gather.start());
      kept.back().wait();
      for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<int>(i / 3));
    }
  });
}

TEST(CallErrors, AreThoseOfTheCalls) {
  kolo::run_local(2, [] {
    std::vector<float> x(6, 1), out(5);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    EXPECT_EQ(refused([&] { (void)kolo::prepare("x", Call::reduce(kolo::view(x), 2)); }),
              "reduce of \"x\": there is no root rank 2; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { (void)kolo::prepare("x", Call::allreduce_into(kolo::const_view(x), kolo::view(out))); }),
              "allreduce of \"x\": the input has shape [6], but the output has [5]; they must agree");
    EXPECT_EQ(refused([&] { (void)kolo::prepare("x", Call::gather_into(kolo::const_view(x), {}, kolo::rank())); }),
              "gather of \"x\": rank " + std::to_string(kolo::rank()) +
                  " is the root, and gets the result; give an output");
    EXPECT_EQ(refused([&] { (void)kolo::prepare("", Call::broadcast(kolo::view(x), 0)); }),
              "this call needs a name: give every tensor one of its own, the same on all ranks");
    kolo::Prepared held = kolo::prepare("held", Call::broadcast(kolo::view(x), 0));
    EXPECT_EQ(sentence_of(ErrorCode::duplicate_name, [&] { (void)kolo::reduce_async("held", kolo::view(x), 0); }),
              "the name \"held\" belongs to a prepared request: start that one, or use another name");
    // An output of the wrong size fails there alone, every time.
    out.resize(kolo::rank() == 0 ? 12 : 5);
    kolo::Prepared gather = kolo::prepare("g", Call::allgather_into(kolo::const_view(x), kolo::view(out)));
    for (int call = 0; call < 3; ++call) {
      kolo::Handle handle = gather.start();
      if (kolo::rank() == 0) {
        handle.wait();
        continue;
      }
      EXPECT_EQ(refused([&] { handle.wait(); }),
                "the output of this allgather has 5 elements, but the ranks together gave 12");
    }
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

}  // namespace
