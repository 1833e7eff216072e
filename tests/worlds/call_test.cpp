// SPDX-License-Identifier: Apache-2.0
//
// Collectives as values: prepared ones, groups of them, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"

namespace {

using kolo::Call;
using kolo::ErrorCode;
using kolo::ReduceOp;
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
