// SPDX-License-Identifier: Apache-2.0
//
// What a DistributedOptimizer computes when batches are uneven: the mean over all rows, whatever the micro-steps and
// the ranks; steps that end early; and ranks that mean different things.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>

#include "tests/optimizer/errors.hpp"
#include "tests/optimizer/model.hpp"
#include "world.hpp"

namespace {

using kolo::DistributedOptimizer;
using kolo::DistributedOptimizerOptions;
using kolo::test::error_of;
using kolo::test::Model;
using kolo::testing::run_in;

constexpr std::size_t kWeightsWidth = 5;

/// Counts its steps; leaves values and gradients alone.
struct WeightsCounter {
  int steps = 0;
  void step() { ++steps; }
  void zero_grad() {}
};

/// The gradient of one row, as irregular as they are.
double gradient_of_row(std::size_t row, std::size_t element) {
  return std::sin(static_cast<double>(row * 7 + element * 3 + 1)) * static_cast<double>(row % 11 + 1);
}

/// How many rows a rank has in a micro-step of a step: uneven in every way, some none.
std::size_t rows_of(int step, int micro_step, int rank) {
  constexpr std::size_t kRows[] = {48, 20, 0, 1, 33, 7, 48, 2, 0, 64, 5};
  return kRows[static_cast<std::size_t>(step * 5 + micro_step * 3 + rank * 4) % 11];
}

/// Rows are numbered in the order of step, micro-step and rank.
std::size_t first_row(int step, int micro_step, int rank) {
  return static_cast<std::size_t>((step * 100 + micro_step * 10 + rank) * 64);
}

/// What a backward pass adds: the mean over its rows; of no rows, no number.
void add_mean(std::vector<double>& gradient, int step, int micro_step, int rank) {
  const std::size_t rows = rows_of(step, micro_step, rank);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    double sum = 0;
    for (std::size_t row = 0; row < rows; ++row) sum += gradient_of_row(first_row(step, micro_step, rank) + row, i);
    gradient[i] += sum / static_cast<double>(rows);
  }
}

/// What one rank gets over all rows; zeros for none.
std::vector<double> mean_of(int step, const std::function<int(int rank)>& micro_steps, int ranks) {
  std::vector<double> mean(kWeightsWidth);
  std::size_t all = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int micro_step = 0; micro_step < micro_steps(rank); ++micro_step) {
      const std::size_t rows = rows_of(step, micro_step, rank);
      all += rows;
      for (std::size_t i = 0; i < kWeightsWidth; ++i) {
        for (std::size_t row = 0; row < rows; ++row)
          mean[i] += gradient_of_row(first_row(step, micro_step, rank) + row, i);
      }
    }
  }
  for (double& element : mean) element /= static_cast<double>(all == 0 ? 1 : all);
  return mean;
}

void expect_near_mean(const std::vector<double>& got, const std::vector<double>& wanted, int step) {
  for (std::size_t i = 0; i < kWeightsWidth; ++i)
    EXPECT_NEAR(got[i], wanted[i], 1e-12) << "step " << step << "[" << i << "]";
}

void run_weighted(int ranks, const std::function<void()>& body) { run_in(ranks, body); }

class Weights : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Weights, testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

TEST_P(Weights, AreTheRowsOfAllMicroStepsAndRanks) {
  run_weighted(GetParam(), [] {
    constexpr int kMicroSteps = 4;
    Model<double> model;
    auto& a = model.add("a", std::vector<double>(kWeightsWidth));
    auto& b = model.add("b", std::vector<double>(kWeightsWidth));
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(),
                                   DistributedOptimizerOptions{}.with_accumulation_steps(kMicroSteps));
    const int rank = kolo::rank();
    for (int step = 0; step < 6; ++step) {
      a.gradient.assign(kWeightsWidth, 0);
      b.gradient.assign(kWeightsWidth, 0);
      for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
        optimizer.begin_micro_step(rows_of(step, micro_step, rank));
        add_mean(b.gradient, step, micro_step, rank);
        optimizer.gradient_ready(1);
        add_mean(a.gradient, step, micro_step, rank);
        EXPECT_EQ(optimizer.step(), micro_step + 1 == kMicroSteps);
      }
      const auto wanted = mean_of(
          step, [](int) { return kMicroSteps; }, kolo::size());
      expect_near_mean(a.gradient, wanted, step);
      expect_near_mean(b.gradient, wanted, step);
    }
    EXPECT_EQ(none.steps, 6);
  });
}

/// At the end of an epoch ranks have different numbers of micro-steps left, some of them none; some have a whole step.
TEST_P(Weights, AreRightWhenAStepEndsEarly) {
  run_weighted(GetParam(), [] {
    constexpr int kMicroSteps = 3;
    Model<double> model;
    auto& a = model.add("a", std::vector<double>(kWeightsWidth));
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(),
                                   DistributedOptimizerOptions{}.with_accumulation_steps(kMicroSteps));
    const int rank = kolo::rank();
    for (int step = 0; step < 8; ++step) {
      const auto micro_steps = [step](int one) { return (one + step) % (kMicroSteps + 1); };
      a.gradient.assign(kWeightsWidth, micro_steps(rank) == 0 ? 77 : 0);  // of a step before
      bool stepped = false;
      for (int micro_step = 0; micro_step < micro_steps(rank); ++micro_step) {
        optimizer.begin_micro_step(rows_of(step, micro_step, rank));
        add_mean(a.gradient, step, micro_step, rank);
        stepped = optimizer.step();
      }
      if (!stepped) stepped = optimizer.flush();
      bool anything = false;
      for (int one = 0; one < kolo::size(); ++one) anything = anything || micro_steps(one) > 0;
      EXPECT_EQ(stepped, anything);
      if (anything) expect_near_mean(a.gradient, mean_of(step, micro_steps, kolo::size()), step);
    }
  });
}

TEST_P(Weights, ThatAreEqualChangeNoBit) {
  run_weighted(GetParam(), [] {
    Model<float> plain, weighted;
    auto& p = plain.add("p", {0.0F, 0.0F});
    auto& w = weighted.add("w", {0.0F, 0.0F});
    WeightsCounter none;
    const DistributedOptimizerOptions three = DistributedOptimizerOptions{}.with_accumulation_steps(3);
    DistributedOptimizer one(none, plain.parameters(), three), other(none, weighted.parameters(), three);
    for (int micro_step = 0; micro_step < 3; ++micro_step) {
      other.begin_micro_step(7);
      other.zero_grad();  // which may come after it, too
      for (std::size_t i = 0; i < 2; ++i) {
        const float term = 0.1F + static_cast<float>(kolo::rank() * 3 + micro_step) / 7.0F;
        p.gradient[i] += term;
        w.gradient[i] += term;
      }
      one.step();
      other.step();
    }
    EXPECT_EQ(p.gradient, w.gradient);
  });
}

TEST_P(Weights, OfStepsWithoutAnySampleAreZero) {
  run_weighted(GetParam(), [] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(), DistributedOptimizerOptions{}.with_accumulation_steps(2));
    for (int micro_step = 0; micro_step < 2; ++micro_step) {
      optimizer.begin_micro_step(0);
      a.gradient[0] = std::numeric_limits<double>::quiet_NaN();
      optimizer.step();
    }
    EXPECT_EQ(a.gradient[0], 0.0);
    EXPECT_EQ(none.steps, 1);
  });
}

TEST_P(Weights, MustBeKnownBeforeTheBackwardPassWhereGradientsAddUp) {
  run_weighted(GetParam(), [] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(), DistributedOptimizerOptions{}.with_accumulation_steps(2));
    a.gradient = {2.0};
    EXPECT_EQ(
        error_of([&] { optimizer.step(3); }),
        "invalid_argument: DistributedOptimizer: step(samples) comes after the backward pass has added to earlier "
        "micro-steps' gradients; with accumulation_steps above 1 give the samples before it, by "
        "begin_micro_step(samples)");
    EXPECT_FALSE(optimizer.step());
    EXPECT_EQ(error_of([&] { optimizer.begin_micro_step(3); }),
              "invalid_argument: DistributedOptimizer: this step's earlier micro-steps gave no samples; all or none "
              "must");
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(a.gradient[0], 1.0) << "nothing was changed";
  });
}

TEST_P(Weights, FlushIsTheMeanOfTheMicroStepsThatThereAre) {
  run_weighted(GetParam(), [] {
    for (const kolo::ReduceOp op : {kolo::ReduceOp::average, kolo::ReduceOp::sum}) {
      Model<double> model;
      auto& a = model.add("a", {0.0});
      kolo::Sgd sgd(model.parameters(), {1.0});
      DistributedOptimizer optimizer(sgd, model.parameters(),
                                     DistributedOptimizerOptions{}.with_accumulation_steps(3).with_op(op));
      const double ranks = kolo::size();
      const double mean = (ranks - 1) / 2, sum = mean * ranks;
      const bool averages = op == kolo::ReduceOp::average;
      double expected = 0;
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (int micro_step = 0; micro_step < 5; ++micro_step) {
          optimizer.zero_grad();
          a.gradient[0] += kolo::rank() + 8.0 * micro_step;
          optimizer.gradient_ready(0);
          EXPECT_EQ(optimizer.step(), micro_step == 2);
        }
        double seen = 0;
        EXPECT_TRUE(optimizer.flush([&] { seen = a.gradient[0]; }));
        EXPECT_EQ(seen, averages ? mean + 28 : 2 * sum + 56 * ranks);
        EXPECT_EQ(a.gradient[0], seen);
        expected -= averages ? mean + 8 + mean + 28 : 3 * sum + 24 * ranks + 2 * sum + 56 * ranks;
        EXPECT_EQ(a.value[0], expected) << "the first three, then the two that were left";
        EXPECT_FALSE(optimizer.flush()) << "nothing is left";
        EXPECT_EQ(a.value[0], expected);
        sgd.zero_grad();
      }
    }
  });
}

TEST_P(Weights, FlushOfOtherTypes) {
  run_weighted(GetParam(), [] {
    Model<kolo::BFloat16> model;
    auto& a = model.add("a", std::vector<kolo::BFloat16>(3));
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(), DistributedOptimizerOptions{}.with_accumulation_steps(3));
    a.gradient.assign(3, kolo::BFloat16{0x4080});  // 4.0
    optimizer.step();
    optimizer.step();
    EXPECT_TRUE(optimizer.flush());
    for (const kolo::BFloat16& element : a.gradient) EXPECT_EQ(element.bits, 0x4000) << "4.0 over two micro-steps";
  });
}

TEST_P(Weights, FlushComesBetweenMicroSteps) {
  run_weighted(GetParam(), [] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(), DistributedOptimizerOptions{}.with_accumulation_steps(2));
    const std::string refused =
        "invalid_argument: DistributedOptimizer: flush() in the middle of a micro-step; step() ends it";
    a.gradient = {4.0};
    optimizer.gradient_ready(0);
    EXPECT_EQ(error_of([&] { optimizer.flush(); }), refused);
    EXPECT_FALSE(optimizer.step());
    optimizer.gradient_ready(0);
    EXPECT_EQ(error_of([&] { optimizer.flush(); }), refused);
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(a.gradient[0], 2.0);
    optimizer.begin_micro_step(1);
    EXPECT_EQ(error_of([&] { optimizer.flush(); }), refused);
    EXPECT_FALSE(optimizer.step());
    EXPECT_TRUE(optimizer.flush());
  });
}

// ---------------------------------------------------------------- ranks that mean different things

/// What every rank is told; afterwards the same optimizers go on.
std::vector<std::string> weights_disagreements(int ranks, int accumulation_steps,
                                               const std::function<void(DistributedOptimizer<WeightsCounter>&)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_weighted(ranks, [&] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    auto& b = model.add("b", {0.0});
    WeightsCounter none;
    DistributedOptimizer optimizer(none, model.parameters(),
                                   DistributedOptimizerOptions{}.with_accumulation_steps(accumulation_steps));
    errors[static_cast<std::size_t>(kolo::rank())] = error_of([&] { body(optimizer); });
    EXPECT_EQ(none.steps, 0);
    for (const bool weighted : {false, true}) {
      a.gradient = b.gradient = {kolo::rank() + 1.0};
      for (int micro_step = 0; micro_step < accumulation_steps; ++micro_step) {
        if (weighted) optimizer.begin_micro_step(2);
        optimizer.step();
      }
      EXPECT_EQ(a.gradient[0], (kolo::size() + 1) / 2.0 / accumulation_steps);
      EXPECT_EQ(b.gradient[0], a.gradient[0]);
    }
    EXPECT_EQ(none.steps, 2);
  });
  return errors;
}

constexpr const char* kWeightsBegin = "mismatch: DistributedOptimizer(gradients): weights of a step: ranks disagree: ";

TEST(WeightsDisagreement, SomeGiveSamples) {
  EXPECT_EQ(
      weights_disagreements(3, 1, [](auto& optimizer) { kolo::rank() == 0 ? optimizer.step(5) : optimizer.step(); }),
      std::vector<std::string>(3, std::string(kWeightsBegin) +
                                      "rank 0 has \"the samples of every micro-step\"; ranks 1 "
                                      "and 2 have \"no samples, 1 micro-step\""));
  EXPECT_EQ(weights_disagreements(2, 1,
                                  [](auto& optimizer) {
                                    if (kolo::rank() == 1) optimizer.begin_micro_step(5);
                                    optimizer.gradient_ready(1);
                                    optimizer.gradient_ready(0);
                                    optimizer.step();
                                  }),
            std::vector<std::string>(2, std::string(kWeightsBegin) +
                                            "rank 0 has \"no samples, 1 micro-step\"; rank 1 has "
                                            "\"the samples of every micro-step\""));
}

TEST(WeightsDisagreement, OtherNumbersOfMicroSteps) {
  EXPECT_EQ(weights_disagreements(3, 3,
                                  [](auto& optimizer) {
                                    for (int micro_step = 0; micro_step < kolo::rank(); ++micro_step) optimizer.step();
                                    optimizer.flush();
                                  }),
            std::vector<std::string>(3, std::string(kWeightsBegin) +
                                            "rank 0 has \"no samples, 0 micro-steps\"; rank 1 has \"no samples, 1 "
                                            "micro-step\"; rank 2 has \"no samples, 2 micro-steps\""));
}

TEST(WeightsDisagreement, SomeFlushWhereOthersStep) {
  EXPECT_EQ(weights_disagreements(2, 2,
                                  [](auto& optimizer) {
                                    optimizer.step();
                                    kolo::rank() == 0 ? optimizer.flush() : optimizer.step();
                                  }),
            std::vector<std::string>(2, std::string(kWeightsBegin) +
                                            "rank 0 has \"no samples, 1 micro-step\"; rank 1 has \"no "
                                            "samples, 2 micro-steps\""));
}

}  // namespace
