// SPDX-License-Identifier: Apache-2.0
//
// Scatter from a root, from end to end, on threads: scalars, and what is refused.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
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
class Scatter : public testing::TestWithParam<std::pair<int, int>> {
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
INSTANTIATE_TEST_SUITE_P(Worlds, Scatter,
                         testing::ValuesIn(kolo::testing::and_unless_sanitized<std::pair<int, int>>(
                             {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {3, 2}}, {{8, 0}, {8, 3}})),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) +
                                  "pernode";
                         });

TEST_P(Scatter, AScalarIsARow) {
  run([] {
    const int root = kolo::size() - 1;
    std::vector<double> all(static_cast<std::size_t>(kolo::size()));
    std::iota(all.begin(), all.end(), 0.5);
    double own = -1;
    kolo::scatter_into(kolo::const_view(all), kolo::TensorView(&own, kolo::DType::float64, Shape{}), root);
    EXPECT_EQ(own, kolo::rank() + 0.5);
  });
}

TEST(ScatterErrors, AtTheCall) {
  kolo::run_local(2, [] {
    const int self = kolo::rank();
    std::vector<float> x(6, 1), out(3);
    const std::vector<double> wide(6);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    const auto in = kolo::const_view(x);
    const auto to = kolo::view(out);
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", in, to, 2); }),
              "scatter of \"x\": there is no root rank 2; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { kolo::scatter_into(std::nullopt, to, self); }),
              "unnamed scatter: rank " + std::to_string(self) +
                  " is the root, whose rows the ranks get; give an input");
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", kolo::const_view(x.data(), 5), to, self); }),
              "scatter of \"x\": its 5 rows cannot be divided evenly among 2 ranks; give splits");
    EXPECT_EQ(refused([&] {
                kolo::scatter_into("x", in, to, self, std::vector<std::int64_t>{3, 2});
              }),
              "scatter of \"x\": the splits sum up to 5, but the input has 6 rows; all of them must go somewhere");
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", in, to, self, std::vector<std::int64_t>{6}); }),
              "scatter of \"x\": 1 splits were given for 2 ranks; give one for each");
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", kolo::const_view(wide), to, self); }),
              "scatter of \"x\": the input is float64, but the output is float32; they must agree");
    EXPECT_EQ(refused([&] {
                kolo::scatter_into("x", kolo::const_view(x.data(), Shape{2, 3}), to, self);
              }),
              "scatter of \"x\": the input has rows of shape [3], but the output has rows of []; they must agree");
    EXPECT_EQ(
        refused([&] { kolo::scatter_into("x", in, kolo::view(x.data() + 1, 3), self); }),
        "scatter of \"x\": the input and the output overlap; give an output of its own, or exactly this rank's rows "
        "of the input");
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(ScatterErrors, RanksThatDisagreeAndAnOutputOfTheWrongSize) {
  for (const int per_node : {0, 1}) {
    kolo::run_local(
        2,
        [] {
          const std::vector<float> x(6, 1);
          std::vector<float> out(kolo::rank() == 1 ? 4 : 3, -1);
          const auto in = kolo::const_view(x);
          EXPECT_EQ(
              sentence_of(ErrorCode::mismatch, [&] { kolo::scatter_into("x", in, kolo::view(out), kolo::rank()); }),
              "tensor \"x\" of scatter: ranks disagree about root: 0 on rank 0; 1 on rank 1. The operation did not "
              "run; submit the same on every rank.");
          for (const bool named : {true, false, true}) {
            out.assign(out.size(), -1);
            const auto call = [&] {
              named ? kolo::scatter_into("x", in, kolo::view(out), 0) : kolo::scatter_into(in, kolo::view(out), 0);
            };
            if (kolo::rank() == 1) {
              EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, call),
                        (named ? "the output of scatter of \"x\"" : "the output of this scatter") +
                            std::string(" has 4 elements, but the root gave this rank 3"));
              EXPECT_EQ(out, std::vector<float>(4, -1));
            } else {
              call();
              EXPECT_EQ(out, std::vector<float>(3, 1));
            }
          }
          EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
        },
        kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", std::to_string(per_node)));
  }
}

}  // namespace
