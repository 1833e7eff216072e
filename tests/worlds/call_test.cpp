// SPDX-License-Identifier: Apache-2.0
//
// Collectives as values: prepared ones of every kind, step after step, groups of every kind, and what is
// refused.
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
      if (differs_by_pair(operation.kind))
        operation.lengths.resize(static_cast<std::size_t>(kolo::size(group) * kolo::size(group)), length + 2);
      operation.form = kolo::testing::Form::prepared;
      if (has_output(operation.kind)) all.push_back(std::make_unique<InFlight>(group, std::move(operation), own));
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

/// Three of a kind, of other types and lengths, as one operation.
std::vector<std::unique_ptr<InFlight>> some_of(Kind kind, const kolo::Group& group, kolo::testing::Random& own) {
  std::vector<std::unique_ptr<InFlight>> members;
  for (const DType dtype : {DType::float32, DType::int16, DType::float64}) {
    Operation operation;
    operation.kind = kind;
    operation.dtype = dtype;
    operation.root = static_cast<int>(kind) % kolo::size(group);
    operation.lengths = {static_cast<std::int64_t>(members.size()) * 70};
    if (differs_by_rank(kind)) operation.lengths.resize(static_cast<std::size_t>(kolo::size(group)), 9);
    if (differs_by_pair(kind))
      operation.lengths.resize(static_cast<std::size_t>(kolo::size(group) * kolo::size(group)), 9);
    members.push_back(std::make_unique<InFlight>(group, std::move(operation), own));
  }
  return members;
}

TEST_P(Calls, GroupsOfEveryKind) {
  run([] {
    kolo::testing::Random own = kolo::testing::random_of(5, static_cast<std::uint64_t>(kolo::rank()));
    for (const kolo::Group& group : {kolo::world(), kolo::world().split(kolo::rank() % 2)}) {
      std::vector<std::vector<std::unique_ptr<InFlight>>> groups;
      for (int number = 0; number < kolo::testing::kKinds; ++number) {
        const auto kind = static_cast<Kind>(number);
        if (has_output(kind) && kind != Kind::grouped) groups.push_back(some_of(kind, group, own));
      }
      for (int step = 0; step < 4; ++step) {
        std::vector<kolo::Handle> open;
        for (const auto& members : groups) {
          std::vector<Call> calls;
          for (const auto& one : members) calls.push_back(one->as_call(step));
          open.push_back(kolo::grouped_async(group, std::to_string(open.size()), calls));
        }
        for (kolo::Handle& handle : open) handle.wait();
        for (const auto& members : groups)
          for (const auto& one : members)
            EXPECT_NO_THROW(one->check()) << describe(one->operation()) << " on rank " << kolo::rank();
        kolo::end_step(group);
      }
    }
  });
}

TEST_P(Calls, PreparedGroups) {
  run([] {
    const int size = kolo::size();
    const std::vector<int> in(static_cast<std::size_t>(kolo::rank()) + 1, kolo::rank());
    std::vector<int> wanted;
    for (int rank = 0; rank < size; ++rank) wanted.insert(wanted.end(), static_cast<std::size_t>(rank) + 1, rank);
    const std::vector<float> more(2, static_cast<float>(kolo::rank()));
    std::vector<int> out(wanted.size());
    std::vector<float> more_out(2 * static_cast<std::size_t>(size));
    kolo::Prepared gathers =
        kolo::prepare_grouped("g", {Call::allgather_into(kolo::const_view(in), kolo::view(out)),
                                    Call::allgather_into(kolo::const_view(more), kolo::view(more_out))});
    for (int step = 0; step < 5; ++step) {
      out.assign(out.size(), -1);
      more_out.assign(more_out.size(), -1);
      gathers.start().wait();
      EXPECT_EQ(out, wanted);
      for (std::size_t i = 0; i < more_out.size(); ++i) EXPECT_EQ(more_out[i], static_cast<float>(i / 2));
    }
    // Made at once, by name.
    std::vector<double> a(3, kolo::rank()), b(70, 1);
    kolo::grouped("b", {Call::broadcast(kolo::view(a), size - 1), Call::broadcast(kolo::view(b), size - 1)});
    EXPECT_EQ(a, std::vector<double>(3, size - 1));
    kolo::grouped("b", {Call::reduce(kolo::view(a), 0), Call::reduce(kolo::view(b), 0)});
    EXPECT_EQ(b, std::vector<double>(70, kolo::rank() == 0 ? size : 1));
  });
}

TEST(CallErrors, OfGroups) {
  kolo::run_local(2, [] {
    std::vector<float> x(6, 1), y(6, 2);
    std::vector<float> out(12);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    const Call sum = Call::allreduce(kolo::view(x), ReduceOp::sum);
    EXPECT_EQ(refused([&] { kolo::grouped("g", {}); }), "grouped call \"g\": it has no calls; give at least one");
    EXPECT_EQ(refused([&] {
                kolo::grouped("g", {sum, Call::broadcast(kolo::view(y), 0)});
              }),
              "grouped call \"g\": its calls differ in the kind of collective: allreduce in call 0, broadcast in call "
              "1; they may "
              "differ in their tensors alone");
    EXPECT_EQ(
        refused([&] {
          kolo::grouped("g", {sum, Call::allreduce(kolo::view(y), ReduceOp::max)});
        }),
        "grouped call \"g\": its calls differ in op: sum in call 0, max in call 1; they may differ in their tensors "
        "alone");
    EXPECT_EQ(
        refused([&] {
          kolo::grouped("g", {Call::reduce(kolo::view(x), 0), Call::reduce(kolo::view(y), 1)});
        }),
        "grouped call \"g\": its calls differ in root: 0 in call 0, 1 in call 1; they may differ in their tensors "
        "alone");
    EXPECT_EQ(refused([&] {
                kolo::grouped("g", {sum, sum});
              }),
              "grouped call \"g\": calls 0 and 1 use the same memory, and one of them writes it; give each its own");
    EXPECT_EQ(refused([&] {
                kolo::grouped("g", {Call::allgather_into(kolo::const_view(x), kolo::view(out)),
                                    Call::allgather_into(kolo::const_view(y), kolo::view(out.data() + 11, 1))});
              }),
              "grouped call \"g\": calls 0 and 1 use the same memory, and one of them writes it; give each its own");
    // Reading the same is no harm. An output of the wrong size fails the group there, and nowhere else.
    std::vector<float> other(kolo::rank() == 0 ? 12 : 7);
    for (int call = 0; call < 2; ++call) {
      const auto gather = [&] {
        kolo::grouped("g", {Call::allgather_into(kolo::const_view(x), kolo::view(out)),
                            Call::allgather_into(kolo::const_view(x), kolo::view(other))});
      };
      if (kolo::rank() == 0) {
        gather();
        EXPECT_EQ(other, std::vector<float>(12, 1));
      } else {
        EXPECT_EQ(refused(gather), "the output of call 1 of \"g\" has 7 elements, but the ranks together gave 12");
      }
    }
    // One of another length makes all of them not run.
    const std::vector<float> before = y;
    const auto longer = kolo::view(y.data(), kolo::rank() == 0 ? 6 : 5);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch,
                          [&] {
                            kolo::grouped("h", {sum, Call::allreduce(longer)});
                          }),
              "tensor \"h\" of allreduce: ranks disagree about shape of tensor 1: [6] on rank 0; [5] on rank 1. The "
              "operation did not run; submit the same on every rank.");
    EXPECT_EQ(x, std::vector<float>(6, 1));
    EXPECT_EQ(y, before);
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
                "the output of allgather of \"g\" has 5 elements, but the ranks together gave 12");
    }
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

}  // namespace
