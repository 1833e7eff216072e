// SPDX-License-Identifier: Apache-2.0
//
// All-reduces and reduce-scatters whose tensors travel as 16-bit floats: exact where the numbers are, rounded as
// promised where they are not, bitwise the same on all ranks, wherever the tensors lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "base/half.hpp"
#include "errors.hpp"
#include "tests/optimizer/model.hpp"
#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::AllreduceOptions;
using kolo::DType;
using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::Shape;
using kolo::TensorView;
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::sentence_of;
using kolo::testing::worlds;

constexpr std::int64_t kLengths[] = {0, 1, 7, 100, 5'000, kolo::testing::unless_sanitized(70'001, 20'001)};

AllreduceOptions as(DType dtype) { return AllreduceOptions{}.with_send_as(dtype); }

float rounded(DType dtype, float value) {
  return dtype == DType::float16 ? kolo::base::to_float(kolo::base::to_float16(value))
                                 : kolo::base::to_float(kolo::base::to_bfloat16(value));
}

class SendAs : public InWorlds {
 protected:
  SendAs() : InWorlds({{"KOLO_SLOT_BYTES", "16K"}}) {}
};
INSTANTIATE_TEST_SUITE_P(Worlds, SendAs, worlds({{1, 0}, {2, 0}, {4, 0}, {4, 1}, {4, 2}, {3, 2}}), name_of);

template <class T>
void sum_exactly(const TensorView& x, DType narrow) {
  auto* data = static_cast<T*>(x.data());
  const std::int64_t count = x.elements();
  const int rank = kolo::rank();
  const int ranks = kolo::size();
  for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(i % 31 - 15 + rank);
  kolo::allreduce("x", x, as(narrow));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto wanted = static_cast<T>(ranks * (i % 31 - 15) + ranks * (ranks - 1) / 2);
    if (data[i] == wanted) continue;  // an assertion takes a while, under a sanitizer above all
    ASSERT_EQ(data[i], wanted) << i << " of " << count;
  }
}

TEST_P(SendAs, ExactNumbersStayExactInAndOutOfAnArena) {
  run([] {
    for (const std::int64_t length : kLengths) {
      std::vector<float> singles(static_cast<std::size_t>(length));
      std::vector<double> doubles(static_cast<std::size_t>(length));
      kolo::GradientArena arena(4 << 20);
      for (const DType narrow : {DType::float16, DType::bfloat16}) {
        sum_exactly<float>(kolo::view(singles), narrow);
        sum_exactly<double>(kolo::view(doubles), narrow);
        sum_exactly<float>(arena.allocate(DType::float32, Shape{length}), narrow);
        const bool here = kolo::rank() == 0;  // in an arena on one rank alone
        sum_exactly<float>(here ? arena.allocate(DType::float32, Shape{length}) : kolo::view(singles), narrow);
      }
    }
  });
}

/// Numbers that 16 bits do not hold.
std::vector<float> rough(std::size_t count, int rank) {
  std::mt19937 random(static_cast<std::uint32_t>(rank));
  std::uniform_real_distribution<float> values(-100, 100);
  std::vector<float> numbers(count);
  for (float& number : numbers) number = values(random);
  return numbers;
}

void expect_same_bits_everywhere(const std::vector<float>& numbers) {
  const std::string mine(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  for (const std::string& other : kolo::allgather_object(mine)) EXPECT_TRUE(other == mine);
}

TEST_P(SendAs, InputsAndResultsAreRoundedAndSumsAreNot) {
  run([] {
    const int ranks = kolo::size();
    const bool one_node = kolo::local_size() == ranks;
    for (const DType narrow : {DType::float16, DType::bfloat16}) {
      for (const std::int64_t length : kLengths) {
        const auto count = static_cast<std::size_t>(length);
        std::vector<float> wanted(count);
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<float> part = rough(count, rank);
          for (std::size_t i = 0; i < count; ++i) wanted[i] += ranks == 1 ? part[i] : rounded(narrow, part[i]);
        }
        std::vector<float> sum = rough(count, kolo::rank());
        kolo::allreduce("x", kolo::view(sum), as(narrow));
        expect_same_bits_everywhere(sum);
        for (std::size_t i = 0; i < count; ++i) {
          if (ranks == 1) {
            ASSERT_EQ(sum[i], wanted[i]) << "nothing is sent, nothing rounded";
          } else if (one_node) {
            ASSERT_EQ(sum[i], rounded(narrow, wanted[i])) << i;
          } else {  // the order of adding is another, so the last bit may be
            ASSERT_NEAR(sum[i], wanted[i], std::abs(wanted[i]) / 100 + 1e-4) << i;
            ASSERT_EQ(sum[i], rounded(narrow, sum[i])) << i;
          }
        }
      }
    }
  });
}

TEST_P(SendAs, AReduceScatterGivesTheRowsOfAnAllreduce) {
  run([] {
    for (const DType narrow : {DType::float16, DType::bfloat16}) {
      for (const AllreduceOptions& how : {AllreduceOptions{}.with_prescale(0.3).with_postscale(0.7),
                                          AllreduceOptions(ReduceOp::average), AllreduceOptions(ReduceOp::min)}) {
        for (const std::int64_t length : kLengths) {
          const AllreduceOptions options = AllreduceOptions(how).with_send_as(narrow);
          std::vector<float> whole = rough(static_cast<std::size_t>(length), kolo::rank());
          kolo::ReduceScatterOptions same(how.op);
          same.with_prescale(how.prescale).with_postscale(how.postscale).with_send_as(narrow);
          const kolo::Tensor rows = kolo::reduce_scatter("rows", kolo::const_view(whole), same);
          const kolo::Tensor all = kolo::allgather(rows.view());
          kolo::allreduce("whole", kolo::view(whole), options);
          const kolo::Span<const float> got = all.as<float>();
          EXPECT_EQ(std::vector<float>(got.begin(), got.end()), whole) << length;
        }
      }
    }
  });
}

TEST_P(SendAs, PrescaleComesBeforeRounding) {
  run([] {
    std::vector<float> large(5'000, 1 << 20), small(3, 1 << 20);  // beyond float16; the sum is not, scaled
    const AllreduceOptions options = as(DType::float16).with_prescale(1.0 / 1024).with_postscale(0.5);
    kolo::allreduce("large", kolo::view(large), options);
    kolo::allreduce(kolo::view(small), options);
    const auto wanted = static_cast<float>(512 * kolo::size());
    EXPECT_EQ(large, std::vector<float>(5'000, wanted));
    EXPECT_EQ(small, std::vector<float>(3, wanted));
  });
}

TEST_P(SendAs, EveryFormOfTheCall) {
  run([] {
    const auto ranks = static_cast<float>(kolo::size());
    const AllreduceOptions narrow = as(DType::bfloat16);
    std::vector<float> a(300, 1), b(300), c(2, 3);
    std::vector<kolo::Float16> half(4, kolo::base::to_float16(2));
    kolo::allreduce_into(kolo::const_view(a), kolo::view(b), narrow);
    EXPECT_EQ(a, std::vector<float>(300, 1));
    EXPECT_EQ(b, std::vector<float>(300, ranks));
    kolo::grouped_allreduce("g", {{"a", kolo::view(a)}, {"half", kolo::view(half)}, {"c", kolo::view(c)}}, narrow);
    EXPECT_EQ(a, std::vector<float>(300, ranks));
    EXPECT_EQ(c, std::vector<float>(2, 3 * ranks));
    EXPECT_EQ(kolo::base::to_float(half[3]), 2 * ranks) << "sent as it is";
    kolo::Prepared prepared = kolo::prepare("p", kolo::Call::allreduce(kolo::view(a), narrow));
    for (int step = 1; step <= 3; ++step) {
      a.assign(300, static_cast<float>(step));
      prepared.start().wait();
      EXPECT_EQ(a, std::vector<float>(300, static_cast<float>(step) * ranks));
      kolo::end_step();
    }
    std::vector<float> peak(40, static_cast<float>(kolo::rank()));
    kolo::allreduce(kolo::view(peak), as(DType::float16).with_op(ReduceOp::max));
    EXPECT_EQ(peak, std::vector<float>(40, ranks - 1));
  });
}

struct Counter {
  void step() {}
  void zero_grad() {}
};

TEST_P(SendAs, GradientsOfADistributedOptimizer) {
  run([] {
    kolo::test::Model<float> model;
    auto& a = model.add("a", std::vector<float>(3'000));
    auto& b = model.add("b", {0.0F});
    std::vector<kolo::Parameter> parameters = model.parameters();
    kolo::GradientArena arena{kolo::Span<kolo::Parameter>(parameters.data(), 1)};  // a's lie in it, b's do not
    auto* in_arena = static_cast<float*>(parameters[0].gradient->data());
    Counter counter;
    kolo::DistributedOptimizer optimizer(
        counter, parameters,
        kolo::DistributedOptimizerOptions{}.with_accumulation_steps(2).with_send_gradients_as(DType::float16));
    const auto ranks = static_cast<float>(kolo::size());
    for (int step = 1; step <= 3; ++step) {
      std::fill(in_arena, in_arena + 3'000, 0.0F);
      b.gradient[0] = 0;
      for (int pass = 0; pass < 2; ++pass) {
        in_arena[0] += static_cast<float>(kolo::rank() * 2);
        in_arena[2'999] += 0.25F;
        b.gradient[0] += static_cast<float>(step * 4);
        EXPECT_EQ(optimizer.step(), pass == 1);
      }
      EXPECT_EQ(in_arena[0], ranks - 1);
      EXPECT_EQ(in_arena[2'999], 0.25F);
      EXPECT_EQ(b.gradient[0], static_cast<float>(step * 4));
    }
    (void)a;
  });
}

TEST(SendAsRefuses, WhatMakesNoSense) {
  kolo::run_local(2, [] {
    kolo::test::Model<float> model;
    model.add("a", {0.0F});
    Counter counter;
    const auto make = [&](DType narrow) {
      kolo::DistributedOptimizer(counter, model.parameters(),
                                 kolo::DistributedOptimizerOptions{}.with_send_gradients_as(narrow));
    };
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { make(DType::int8); }),
              "DistributedOptimizer: send_gradients_as is int8; only float16 and bfloat16 make sense");
    EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { make(kolo::rank() == 0 ? DType::float16 : DType::bfloat16); }),
              "DistributedOptimizer(gradients): ranks disagree: rank 0 has \"send_gradients_as float16\"; rank 1 has "
              "\"send_gradients_as bfloat16\"");
  });
}

/// They do not pass by the log then.
TEST(SendAsRefuses, UnnamedCallsThatDisagree) {
  kolo::run_local(2, [] {
    std::vector<float> x(4);
    AllreduceOptions options;
    if (kolo::rank() == 1) options.send_as = DType::float16;
    const std::string sentence = sentence_of(ErrorCode::mismatch, [&] { kolo::allreduce(kolo::view(x), options); });
    EXPECT_TRUE(kolo::testing::has(sentence, {"about the type that is sent: the tensor's own on rank 0; float16 on"}));
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), 2) << "the job goes on";
  });
}

}  // namespace
