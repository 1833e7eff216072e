// SPDX-License-Identifier: Apache-2.0
//
// The example's training job on ranks as threads: loss curves do not depend on the number of ranks, and a run that was
// stopped goes on as if it had not been.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "examples/train_digits/trainer.hpp"
#include "tests/optimizer/digits_csv.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/scratch_folder.hpp"
#include "world.hpp"

namespace train_digits {
namespace {

using kolo::testing::run_in;
using kolo::testing::ScratchFolder;
using kolo::testing::worlds;

constexpr std::size_t kRows = kolo::testing::unless_sanitized(44, 16) * 32;  // batches, whole on 1, 2, 4 and 8 ranks

// Sanitizers look at the ways that memory takes, which an epoch has all been through.
constexpr int kEpochs = kolo::testing::unless_sanitized(4, 2);
constexpr double kLeft = kolo::testing::unless_sanitized(0.5, 0.9);  // of the first epoch's loss, after the last
constexpr int kEpochsOf16Bits = kolo::testing::unless_sanitized(10, 3);

const Digits& digits() {
  static const Digits loaded = load_digits(kolo::test::digits_csv());
  return loaded;
}

TrainOptions small(int epochs = kEpochs) {
  TrainOptions options;
  options.epochs = epochs;
  options.train_rows = kRows;
  options.learning_rate = 0.02;
  options.seed = 3;
  return options;
}

/// Rank 0's result.
template <class T>
TrainResult train_on(int ranks, int per_node, const TrainOptions& options) {
  TrainResult result;
  const auto body = [&] {
    TrainResult mine = train<T>(digits(), options, [](int, double) {});
    if (kolo::rank() == 0) {
      result = std::move(mine);
    }
  };
  run_in({ranks, per_node}, body);
  EXPECT_TRUE(result.all_ranks_equal);
  EXPECT_EQ(result.ranks, ranks);
  return result;
}

template <class T>
void expect_curves_agree(const TrainOptions& options, double tolerance) {
  const TrainResult alone = train_on<T>(1, 0, options);
  ASSERT_EQ(alone.losses.size(), static_cast<std::size_t>(options.epochs));
  EXPECT_LT(alone.losses.back(), kLeft * alone.losses.front()) << "it learns";
  std::vector<std::pair<int, int>> worlds{{2, 0}, {4, 2}};
  if (!kolo::testing::kSanitized) worlds.insert(worlds.end(), {{4, 0}, {2, 1}, {4, 1}});
  for (const auto& [ranks, per_node] : worlds) {
    const TrainResult together = train_on<T>(ranks, per_node, options);
    ASSERT_EQ(together.losses.size(), alone.losses.size());
    double worst = 0;
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
      worst = std::max(worst, std::abs(together.losses[i] / alone.losses[i] - 1));
    }
    EXPECT_LE(worst, tolerance) << ranks << " ranks, " << per_node << " a node";
  }
}

TEST(TrainingCurves, AgreeInFloat32) { expect_curves_agree<float>(small(), 1e-5); }

TEST(TrainingCurves, AgreeInFloat64) { expect_curves_agree<double>(small(), 1e-12); }

TEST(TrainingCurves, AgreeWithAdamW) {
  TrainOptions options = small();
  options.optimizer = "adamw";
  options.learning_rate = 0.001;
  expect_curves_agree<double>(options, 1e-12);
}

TEST(TrainingCurves, TheSameRunTwiceIsTheSameBits) {
  const TrainResult first = train_on<float>(4, 2, small(2)), second = train_on<float>(4, 2, small(2));
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.weights_hash, second.weights_hash);
}

TEST(TrainingCurves, GradientsSentAs16BitsLearnAsWell) {
  TrainOptions options = small(kEpochsOf16Bits);
  const TrainResult alone = train_on<float>(1, 0, options);
  for (const kolo::DType narrow : {kolo::DType::float16, kolo::DType::bfloat16}) {
    options.send_gradients_as = narrow;
    for (const int per_node : {0, 2}) {
      const TrainResult together = train_on<float>(4, per_node, options);
      EXPECT_GE(together.accuracy, alone.accuracy - 0.01) << kolo::to_string(narrow);
      EXPECT_LE(std::abs(together.losses.back() / alone.losses.back() - 1), 0.05) << kolo::to_string(narrow);
      EXPECT_NE(together.weights_hash, alone.weights_hash) << "something was rounded";
    }
  }
}

TEST(TrainingCurves, GradientsInBlocksOf8BitsLearnAsWell) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    TrainOptions options = small(kEpochsOf16Bits);
    options.optimizer = optimizer;
    if (optimizer == "adamw") options.learning_rate = 0.001;
    const TrainResult alone = train_on<float>(1, 0, options);
    options.compression = kolo::Compression::int8_blocks;
    const TrainResult together = train_on<float>(4, 0, options);
    EXPECT_GE(together.accuracy, alone.accuracy - 0.005) << optimizer;
    EXPECT_LE(std::abs(together.losses.back() / alone.losses.back() - 1), 0.05) << optimizer;
    EXPECT_NE(together.weights_hash, alone.weights_hash) << "something was rounded";
  }
}

// A loop of its own, over batches of 50 rows that 4 ranks share as 20, 15, 10 and 5.
std::vector<double> uneven_losses(int ranks) {
  std::vector<double> losses;
  kolo::run_local(ranks, [&] {
    Network<double> net(static_cast<std::uint64_t>(kolo::rank()));
    kolo::broadcast_parameters(net.parameters());
    kolo::Sgd sgd(net.parameters(), {0.02, 0.9});
    kolo::DistributedOptimizer optimizer(sgd, net.parameters());
    const std::size_t parts[] = {0, 20, 35, 45, 50};
    const auto rank = static_cast<std::size_t>(kolo::rank());
    const std::size_t first = kolo::size() == 1 ? 0 : parts[rank];
    const std::size_t last = kolo::size() == 1 ? 50 : parts[rank + 1];
    for (std::size_t step = 0; step < 60; ++step) {
      Rows rows;
      for (std::size_t i = first; i < last; ++i) {
        rows.push_back((step * 50 + i) % digits().size());
      }
      const Batch<double> batch = gather<double>(digits(), rows);
      optimizer.zero_grad();
      optimizer.begin_micro_step(batch.size());
      const double loss = net.forward_backward(batch, [&](std::size_t i) { optimizer.gradient_ready(i); });
      optimizer.step();
      const double all = kolo::allreduce(loss, kolo::ReduceOp::sum) / 50;
      if (kolo::rank() == 0) {
        losses.push_back(all);
      }
    }
  });
  return losses;
}

TEST(TrainingCurves, UnevenBatchesWeightedBySamplesAgree) {
  const std::vector<double> alone = uneven_losses(1), together = uneven_losses(4);
  ASSERT_EQ(alone.size(), together.size());
  EXPECT_LT(alone.back(), 0.7 * alone.front());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_LE(std::abs(together[i] / alone[i] - 1), 1e-12) << "step " << i;
  }
}

class Resuming : public testing::TestWithParam<const char*> {
 protected:
  const ScratchFolder scratch_{"resuming"};
  const std::string folder_ = scratch_.path("run");
};
INSTANTIATE_TEST_SUITE_P(Optimizers, Resuming, testing::Values("sgd", "adamw"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Resuming, GoesOnAsIfItHadNotStopped) {
  TrainOptions whole = small(4), begin = small(2), rest = small(4);
  whole.optimizer = begin.optimizer = rest.optimizer = GetParam();
  whole.learning_rate = begin.learning_rate = 0.004;
  rest.learning_rate.reset();  // the checkpoint knows it
  begin.save = rest.load = folder_;
  const TrainResult straight = train_on<float>(2, 0, whole);
  const TrainResult first = train_on<float>(2, 0, begin), second = train_on<float>(2, 0, rest);
  EXPECT_EQ(second.weights_hash, straight.weights_hash);
  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(losses, straight.losses);
}

TEST_P(Resuming, WhatCannotBeLoadedFailsOnEveryRank) {
  TrainOptions options = small(1);
  options.load = folder_;
  const auto failure = [&] {
    try {
      train_on<float>(3, 0, options);
    } catch (const kolo::Error& error) {
      return error.status().message();
    }
    return std::string("nothing");
  };
  EXPECT_NE(failure().find(folder_ + "/index.json: open: No such file or directory"), std::string::npos) << failure();
  options.load.clear();
  options.save = folder_;
  train_on<float>(2, 0, options);
  options.save.clear();
  options.load = folder_;
  options.seed = 4;
  EXPECT_NE(failure().find(": was trained with --seed 3; go on with the same, not 4"), std::string::npos) << failure();
}

}  // namespace
}  // namespace train_digits
