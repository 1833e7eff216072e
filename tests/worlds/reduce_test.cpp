// SPDX-License-Identifier: Apache-2.0
//
// Reduce to a root, from end to end, on threads: the bits of an all-reduce, and what is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "base/half.hpp"
#include "errors.hpp"
#include "tests/support/sanitized.hpp"
#include "without_log.hpp"

namespace {

using kolo::DType;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::ReduceOptions;
using kolo::Shape;
using kolo::testing::sentence_of;

/// Ranks, and ranks per (virtual) node.
class Reduce : public testing::TestWithParam<std::pair<int, int>> {
 protected:
  template <class Body>
  static void run(Body&& body, const char* slot_bytes = "256") {
    kolo::run_local(GetParam().first, std::forward<Body>(body),
                    kolo::Options{}
                        .with_setting("KOLO_RANKS_PER_NODE", std::to_string(GetParam().second))
                        .with_setting("KOLO_SLOT_BYTES", slot_bytes)
                        .with_setting("KOLO_TIMEOUT_S", "100"));
  }
};

std::vector<std::pair<int, int>> worlds() {
  std::vector<std::pair<int, int>> all{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {3, 2}, {4, 2}, {8, 3}};
  if (!kolo::testing::kSanitized) all.insert(all.end(), {{8, 0}, {8, 4}, {7, 1}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Worlds, Reduce, testing::ValuesIn(worlds()), [](const auto& info) {
  return std::to_string(info.param.first) + "ranks" + std::to_string(info.param.second) + "pernode";
});

/// Whether a rank works in place is its own business.
TEST_P(Reduce, RanksNeedNotUseTheSameForm) {
  run([] {
    const int size = kolo::size();
    for (int root = 0; root < size; ++root) {
      const std::vector<double> mine(100, 1 + kolo::rank());
      std::vector<double> x = mine, out(100, -1);
      if (kolo::rank() == root) {
        kolo::reduce_into("mixed", kolo::const_view(mine), kolo::view(out), root);
        EXPECT_EQ(out, std::vector<double>(100, size * (size + 1) / 2));
      } else {
        kolo::reduce("mixed", kolo::view(x), root);
      }
      EXPECT_EQ(x, mine);
    }
  });
}

TEST_P(Reduce, AScalarAndScales) {
  run([] {
    const int last = kolo::size() - 1;
    float loss = 4.0F * static_cast<float>(kolo::rank() + 1);
    const float before = loss;
    const ReduceOptions options = ReduceOptions(ReduceOp::average).with_prescale(2).with_postscale(0.25);
    kolo::reduce("loss", kolo::view(&loss, {}), last, options);
    EXPECT_EQ(loss, kolo::rank() == last ? static_cast<float>(kolo::size() + 1) : before);
  });
}

/// Small ones pass by the log, as the calls between them do.
TEST_P(Reduce, UnnamedCallsKeepTheirOrder) {
  run([] {
    const int size = kolo::size();
    for (int call = 0; call < 60; ++call) {
      const int root = call % size;
      std::vector<int> x(static_cast<std::size_t>(1 + call * 7), kolo::rank() + call);
      const std::vector<int> mine = x;
      kolo::reduce(kolo::view(x), root);
      const int sum = size * (size - 1) / 2 + size * call;
      EXPECT_EQ(x, kolo::rank() == root ? std::vector<int>(x.size(), sum) : mine);
      if (call % 3 == 0) {
        EXPECT_EQ(kolo::allreduce(call, ReduceOp::sum), call * size);
      }
    }
  });
}

// ---------------------------------------------------------------- bits

/// Sums that rounding makes depend on the order.
std::vector<float> rough(std::size_t count, int rank) {
  std::mt19937 random(static_cast<std::uint32_t>(rank));
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = values(random) * static_cast<float>(1 << random() % 12);
  return numbers;
}

TEST_P(Reduce, TheRootGetsTheBitsOfAnAllreduce) {
  run(
      [] {
        const std::optional<DType> narrow[] = {std::nullopt, DType::float16, DType::bfloat16};
        for (const std::size_t count : {std::size_t{3}, std::size_t{1'000}, std::size_t{20'001}}) {
          const std::vector<float> mine = rough(count, kolo::rank());
          std::vector<kolo::BFloat16> half(count);
          for (std::size_t i = 0; i < count; ++i) half[i] = kolo::base::to_bfloat16(mine[i]);
          std::vector<kolo::BFloat16> half_of_all = half;
          kolo::allreduce("half of all", kolo::view(half_of_all));
          for (int root = 0; root < kolo::size(); ++root) {
            for (const std::optional<DType>& send_as : narrow) {
              std::vector<float> all = mine, own = mine;
              kolo::AllreduceOptions options;
              options.send_as = send_as;
              kolo::allreduce("all", kolo::view(all), options);
              ReduceOptions same;
              same.send_as = send_as;
              kolo::reduce("own", kolo::view(own), root, same);
              EXPECT_EQ(own, kolo::rank() == root ? all : mine);
            }
            std::vector<kolo::BFloat16> x = half;
            kolo::reduce("half", kolo::view(x), root);
            const auto& wanted = kolo::rank() == root ? half_of_all : half;
            EXPECT_EQ(std::memcmp(x.data(), wanted.data(), count * sizeof x[0]), 0);
          }
        }
      },
      "16K");
}

// ---------------------------------------------------------------- what is refused

TEST(ReduceAtTheCall, WhatIsRefused) {
  kolo::run_local(2, [] {
    std::vector<float> x(6, 1), out(6);
    std::vector<double> wide(6);
    std::vector<int> n(6);
    const auto in = kolo::const_view(x);
    const auto refused = [](auto&& call) { return sentence_of(ErrorCode::invalid_argument, call); };
    EXPECT_EQ(refused([&] { kolo::reduce("x", kolo::view(x), 2); }),
              "reduce of \"x\": there is no root rank 2; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { kolo::reduce(kolo::view(x), -1); }),
              "unnamed reduce: there is no root rank -1; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { (void)kolo::reduce_into_async("x", in, std::nullopt, 5); }),
              "reduce of \"x\": there is no root rank 5; a root is a rank of the group, 0 to 1");
    EXPECT_EQ(refused([&] { kolo::reduce_into("x", in, std::nullopt, kolo::rank()); }),
              "reduce of \"x\": rank " + std::to_string(kolo::rank()) +
                  " is the root, and gets the result; give an output");
    EXPECT_EQ(refused([&] { kolo::reduce_into(in, {}, kolo::rank()); }),
              "unnamed reduce: rank " + std::to_string(kolo::rank()) +
                  " is the root, and gets the result; give an output");
    EXPECT_EQ(refused([&] { kolo::reduce_into("x", in, kolo::view(wide), 0); }),
              "reduce of \"x\": the input is float32, but the output is float64; they must agree");
    EXPECT_EQ(refused([&] { kolo::reduce_into("x", in, kolo::view(out.data(), 5), 0); }),
              "reduce of \"x\": the input has shape [6], but the output has [5]; they must agree");
    EXPECT_EQ(refused([&] { kolo::reduce_into("x", kolo::const_view(x.data(), 4), kolo::view(x.data() + 2, 4), 0); }),
              "reduce of \"x\": the input and the output overlap; use the call without _into to work in place, or give "
              "an output of its own");
    EXPECT_EQ(refused([&] { kolo::reduce("x", kolo::view(n), 0, ReduceOp::average); }),
              "reduce of \"x\": the average of int32 is not defined; use ReduceOp::sum and divide, or a floating-point "
              "type");
    EXPECT_EQ(refused([&] { kolo::reduce("x", kolo::view(n), 0, ReduceOptions{}.with_send_as(DType::float16)); }),
              "reduce of \"x\": int32 cannot be sent as float16; send_as needs a floating-point type");
    EXPECT_EQ(
        refused([&] {
          kolo::reduce_into("x", kolo::ConstTensorView(nullptr, DType::int8, Shape{3}), {}, 1 - kolo::rank());
        }),
        "reduce of \"x\": the tensor is a null pointer, but its shape [3] has 3 elements; give the address of the "
        "first");
    EXPECT_EQ(refused([&] { kolo::reduce("", kolo::view(x), 0); }),
              "this call needs a name: give every tensor one of its own, the same on all ranks");
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2) << "nobody waits for what was refused";
  });
}

TEST(ReduceAtTheCall, SmallUnnamedOnesPassByTheLog) {
  kolo::run_local(
      3,
      [] {
        std::vector<float> x(10, 1);
        for (int call = 0; call < 30; ++call) {
          x.assign(10, 1);
          kolo::reduce(kolo::view(x), call % 3);
          EXPECT_EQ(x[9], kolo::rank() == call % 3 ? 3.0F : 1.0F);
        }
        kolo::testing::expect_calls_without_the_log(0);
        // Of one that goes by the log for its length the root alone may wait: the order is kept all the same.
        std::vector<float> large(100'000, 1);
        kolo::reduce(kolo::view(large), 0);
        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 3);
        EXPECT_EQ(large[99'999], kolo::rank() == 0 ? 3.0F : 1.0F);
      },
      kolo::Options{}.with_setting("KOLO_SPIN_US", "10000"));
}

TEST(ReduceAtTheCall, RanksThatDisagree) {
  kolo::run_local(3, [] {
    std::vector<float> x(4, 1);
    const auto mismatch = [](auto&& call) { return sentence_of(ErrorCode::mismatch, call); };
    EXPECT_EQ(
        mismatch([&] { kolo::reduce("x", kolo::view(x), kolo::rank() == 1 ? 2 : 0); }),
        "tensor \"x\" of reduce: ranks disagree about root: 0 on ranks 0 and 2; 2 on rank 1. The operation did not "
        "run; submit the same on every rank.");
    EXPECT_EQ(
        mismatch(
            [&] { kolo::rank() == 0 ? kolo::allreduce("x", kolo::view(x)) : kolo::reduce("x", kolo::view(x), 0); }),
        "tensor \"x\": ranks disagree about the kind of collective: allreduce on rank 0; reduce on ranks 1 and 2. "
        "The operation did not run; submit the same on every rank.");
    EXPECT_EQ(x, std::vector<float>(4, 1));
    kolo::reduce("x", kolo::view(x), 2);
    EXPECT_EQ(x[0], kolo::rank() == 2 ? 3.0F : 1.0F) << "the job goes on";
  });
}

}  // namespace
