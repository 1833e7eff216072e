// SPDX-License-Identifier: Apache-2.0
//
// Scatter from a root, from end to end, on threads: every form of the call and every root, and what is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "errors.hpp"

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
                         testing::Values(std::pair{1, 0}, std::pair{2, 0}, std::pair{3, 0}, std::pair{4, 0},
                                         std::pair{8, 0}, std::pair{2, 1}, std::pair{4, 2}, std::pair{3, 2},
                                         std::pair{8, 3}),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) +
                                  "pernode";
                         });

TEST_P(Scatter, EveryFormOfTheCallAndEveryRoot) {
  run([] {
    kolo::Context& context = kolo::current_context();
    for (const int part : {0, 1, 40, 900}) {
      for (int root = 0; root < kolo::size(); ++root) {
        const bool is_root = kolo::rank() == root;
        std::vector<std::int64_t> all(static_cast<std::size_t>(is_root ? part * kolo::size() : 1));
        std::iota(all.begin(), all.end(), root * 100'000);
        const std::vector<std::int64_t> before = all;
        std::vector<std::int64_t> wanted(static_cast<std::size_t>(part));
        std::iota(wanted.begin(), wanted.end(), root * 100'000 + kolo::rank() * part);
        std::vector<std::int64_t> out(wanted.size(), -1);
        const auto expect = [&] {
          EXPECT_EQ(out, wanted);
          EXPECT_EQ(all, before);
          out.assign(out.size(), -1);
        };
        const auto in = is_root ? std::optional<kolo::ConstTensorView>(kolo::const_view(all)) : std::nullopt;
        const kolo::TensorView to = kolo::view(out);
        kolo::scatter_into(in, to, root);
        expect();
        kolo::scatter_into("x", in, to, root);
        expect();
        kolo::scatter_into_async("x", in, to, root).wait();
        expect();
        kolo::scatter_into(context, in, to, root);
        expect();
        kolo::scatter_into(context, "x", kolo::const_view(all), to, root);
        expect();
        kolo::scatter_into_async(context, "x", in, to, root).wait();
        expect();
      }
    }
  });
}

TEST(ScatterErrors, AtTheCall) {
  kolo::run_local(2, [] {
    const int self = kolo::rank();
    std::vector<float> x(6, 1), out(3);
    const std::vector<double> wide(6);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", kolo::const_view(x), kolo::view(out), 2); }),
              "scatter of \"x\": there is no root rank 2; ranks are 0 to 1");
    EXPECT_EQ(refused([&] { kolo::scatter_into(std::nullopt, kolo::view(out), self); }),
              "unnamed scatter: rank " + std::to_string(self) + " is the root, whose rows are dealt out; give an input");
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", kolo::const_view(x.data(), 5), kolo::view(out), self); }),
              "scatter of \"x\": the input has 5 elements, but the outputs of 2 ranks have 3 each; it must have 6");
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", kolo::const_view(wide), kolo::view(out), self); }),
              "scatter of \"x\": the input is float64, but the output is float32; they must agree");
    EXPECT_EQ(refused([&] { kolo::scatter_into("x", kolo::const_view(x), kolo::view(x.data() + 3, 3), self); }),
              "scatter of \"x\": the input and the output overlap; give an output of its own");
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2);
  });
}

TEST(ScatterErrors, RanksThatDisagree) {
  kolo::run_local(2, [] {
    const std::vector<float> x(6, 1);
    std::vector<float> out(3, -1);
    EXPECT_EQ(sentence_of(ErrorCode::mismatch,
                          [&] { kolo::scatter_into("x", kolo::const_view(x), kolo::view(out), kolo::rank()); }),
              "tensor \"x\" of scatter: ranks disagree about root: 0 on rank 0; 1 on rank 1. The operation did not run; "
              "submit the same on every rank.");
    EXPECT_EQ(out, std::vector<float>(3, -1));
  });
}

}  // namespace
