// SPDX-License-Identifier: Apache-2.0
//
// Reduce to a root, from end to end, on threads: the bits of an all-reduce, and what is refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "base/half.hpp"
#include "without_log.hpp"
#include "world.hpp"

namespace {

using kolo::DType;
using kolo::ReduceOp;
using kolo::ReduceOptions;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::run_in;
using kolo::testing::worlds;

class Reduce : public InWorlds {
 protected:
  Reduce() : InWorlds({{"KOLO_SLOT_BYTES", "256"}}) {}
};

INSTANTIATE_TEST_SUITE_P(Worlds, Reduce,
                         worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {3, 2}, {4, 2}, {8, 3}},
                                {{8, 0}, {8, 4}, {7, 1}}),
                         name_of);

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
  run({{"KOLO_SLOT_BYTES", "16K"}}, [] {
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
  });
}

TEST(ReduceAtTheCall, SmallUnnamedOnesPassByTheLog) {
  run_in(3, {{"KOLO_SPIN_US", "10000"}}, [] {
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
  });
}

}  // namespace
