// SPDX-License-Identifier: Apache-2.0
//
// Gather to a root, from end to end, on threads: scalars, and what is refused.
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::testing::sentence_of;

/// Ranks, and ranks per (virtual) node.
class Gather : public testing::TestWithParam<std::pair<int, int>> {
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
INSTANTIATE_TEST_SUITE_P(Worlds, Gather,
                         testing::ValuesIn(kolo::testing::and_unless_sanitized<std::pair<int, int>>(
                             {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {3, 2}}, {{8, 0}, {8, 3}})),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) +
                                  "pernode";
                         });

TEST_P(Gather, AScalarIsARow) {
  run([] {
    const double loss = kolo::rank() + 0.5;
    const kolo::Tensor all = kolo::gather(kolo::const_view(&loss, Shape{}), kolo::size() - 1);
    const bool is_root = kolo::rank() == kolo::size() - 1;
    ASSERT_EQ(all.shape(), Shape{is_root ? kolo::size() : 0});
    for (int rank = 0; rank < all.elements(); ++rank)
      EXPECT_EQ(all.as<double>()[static_cast<std::size_t>(rank)], rank + 0.5);
  });
}

TEST(GatherErrors, AtTheCall) {
  kolo::run_local(2, [] {
    const std::vector<float> x(6, 1);
    std::vector<float> out(12);
    std::vector<double> wide(12);
    const auto in = kolo::const_view(x);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    EXPECT_EQ(refused([&] { (void)kolo::gather("x", in, 2); }),
              "gather of \"x\": there is no root rank 2; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { (void)kolo::gather(in, -1); }),
              "unnamed gather: there is no root rank -1; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { kolo::gather_into("x", in, std::nullopt, kolo::rank()); }),
              "gather of \"x\": rank " + std::to_string(kolo::rank()) +
                  " is the root, and gets the result; give an output");
    EXPECT_EQ(refused([&] { kolo::gather_into("x", in, kolo::view(wide), 0); }),
              "gather of \"x\": the input is float32, but the output is float64; they must agree");
    EXPECT_EQ(
        refused([&] { kolo::gather_into("x", kolo::const_view(out.data(), 4), kolo::view(out.data() + 1, 11), 0); }),
        "gather of \"x\": the input and the output overlap; give an output of its own");
    EXPECT_EQ(refused([&] {
                (void)kolo::gather("x", kolo::const_view(x.data(), Shape{6, 0}), 0);
              }),
              "gather of \"x\": its rows, of shape [0], have no elements; nothing can be gathered");
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(GatherErrors, AnInputInTheWrongPlaceOfTheOutput) {
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

TEST(GatherErrors, RanksThatDisagreeAndAnOutputOfTheWrongSize) {
  for (const int per_node : {0, 1}) {
    kolo::run_local(
        2,
        [] {
          const std::vector<float> x(6, 1);
          std::vector<float> out(11, -1);
          EXPECT_EQ(
              sentence_of(ErrorCode::mismatch, [&] { (void)kolo::gather("x", kolo::const_view(x), kolo::rank()); }),
              "tensor \"x\" of gather: ranks disagree about root: 0 on rank 0; 1 on rank 1. The operation did not "
              "run; submit the same on every rank.");
          for (int round = 0; round < 3; ++round) {
            kolo::Handle handle = kolo::gather_into_async("x", kolo::const_view(x), kolo::view(out), 1);
            if (kolo::rank() == 1) {
              EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { handle.wait(); }),
                        "the output of gather of \"x\" has 11 elements, but the ranks together gave 12");
            } else {
              handle.wait();
            }
            EXPECT_EQ(out, std::vector<float>(11, -1));
          }
          EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
        },
        kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", std::to_string(per_node)));
  }
}

}  // namespace
