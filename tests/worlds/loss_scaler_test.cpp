// SPDX-License-Identifier: Apache-2.0
//
// The loss scaler's course, and steps that all ranks skip because one has an overflow.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <kolo/kolo.hpp>
#include <kolo/training.hpp>

#include "errors.hpp"

namespace {

using kolo::ErrorCode;
using kolo::LossScaler;
using kolo::LossScalerOptions;
using kolo::Parameter;
using kolo::Span;
using kolo::testing::sentence_of;

TEST(LossScaler, HalvesAtAnOverflowAndDoublesAfterManyGoodSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_TRUE(scaler.has_overflowed());
  for (int step = 1; step < 2000; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  for (int step = 0; step < 1999; ++step) scaler.update(false);
  scaler.update(true);  // the count begins anew
  for (int step = 0; step < 1999; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_EQ(scaler.skipped(), 2);
  for (int step = 0; step < 40; ++step) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, FollowsItsOptions) {
  LossScaler patient(
      LossScalerOptions().with_initial_scale_power(4).with_hysteresis(2).with_loss_scale_window(3).with_min_loss_scale(
          2));
  patient.update(true);
  EXPECT_EQ(patient.scale(), 16);
  patient.update(true);
  EXPECT_EQ(patient.scale(), 8);
  patient.update(true);
  EXPECT_EQ(patient.scale(), 4);
  for (int step = 0; step < 3; ++step) patient.update(false);
  EXPECT_EQ(patient.scale(), 8);
  patient.update(true);  // tolerated again
  EXPECT_EQ(patient.scale(), 8);
  for (int step = 0; step < 9; ++step) patient.update(true);
  EXPECT_EQ(patient.scale(), 2);

  LossScaler fixed(LossScalerOptions().with_loss_scale(128));
  for (int step = 0; step < 5; ++step) fixed.update(true);
  for (int step = 0; step < 5000; ++step) fixed.update(false);
  EXPECT_EQ(fixed.scale(), 128);
  EXPECT_EQ(fixed.skipped(), 5);

  LossScaler endless(LossScalerOptions().with_initial_scale_power(126).with_loss_scale_window(1));
  for (int step = 0; step < 5; ++step) endless.update(false);
  EXPECT_EQ(endless.scale(), std::ldexp(1.0, 127));  // a float32 can hold it
}

TEST(LossScaler, RefusesOptionsOutOfRange) {
  const auto made = [](const LossScalerOptions& options) { return [options] { LossScaler scaler(options); }; };
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made(LossScalerOptions().with_loss_scale_window(0))),
            "LossScaler: loss_scale_window is 0; it must be 1 or more");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made(LossScalerOptions().with_hysteresis(0))),
            "LossScaler: hysteresis is 0; it must be 1 or more");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made(LossScalerOptions().with_initial_scale_power(200))),
            "LossScaler: initial_scale_power is 200; it must be -126 to 127");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made(LossScalerOptions().with_min_loss_scale(0))),
            "LossScaler: min_loss_scale must be more than 0");
  EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made(LossScalerOptions().with_loss_scale(-1))),
            "LossScaler: loss_scale must be 0 (it follows what happens) or a number above it");
}

TEST(LossScaler, GoesOnFromItsState) {
  LossScaler first(LossScalerOptions().with_loss_scale_window(4)),
      second(LossScalerOptions().with_loss_scale_window(4));
  for (const bool overflow : {true, false, false, true, false, false}) first.update(overflow);
  const std::vector<kolo::NamedView> from = first.state(), to = second.state();
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, to[i].name);
    std::memcpy(to[i].view.data(), from[i].view.data(), static_cast<std::size_t>(from[i].view.bytes()));
  }
  for (int step = 0; step < 2; ++step) {
    first.update(false);
    second.update(false);
  }
  EXPECT_EQ(second.scale(), first.scale());
  EXPECT_EQ(second.skipped(), 2);
}

/// Two weights, whose gradients are the scaled loss's: 1 and 2 times rank + 1.
struct Model {
  std::vector<float> first = std::vector<float>(3), second = std::vector<float>(5);
  std::vector<float> first_gradient = std::vector<float>(3), second_gradient = std::vector<float>(5);
  std::vector<Parameter> list{{"first", kolo::view(first), kolo::view(first_gradient)},
                              {"second", kolo::view(second), kolo::view(second_gradient)}};
  void backward(double scale, bool overflows) {
    for (float& x : first_gradient) x += static_cast<float>(scale * (kolo::rank() + 1));
    for (float& x : second_gradient) x += static_cast<float>(scale * 2 * (kolo::rank() + 1));
    if (overflows) second_gradient[4] = kolo::rank() % 2 == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
  }
};

kolo::Sgd sgd(Span<const Parameter> of) { return kolo::Sgd(of, kolo::SgdOptions().with_learning_rate(1)); }

/// Steps with overflows on one rank or another; the values say which steps were made.
template <class Optimizer>
void expect_skips(Model& model, Optimizer& optimizer, int ranks, int steps) {
  LossScaler scaler;
  double scale = 65536;
  float wanted = 0;
  std::int64_t skipped = 0;
  for (int step = 0; step < steps; ++step) {
    const bool overflows = step % 3 == 1;
    optimizer.zero_grad();
    model.backward(scaler.scale(), overflows && kolo::rank() == step % ranks);
    EXPECT_EQ(optimizer.step(scaler), !overflows);
    if (overflows) {
      scale /= 2;
      ++skipped;
    } else {
      wanted -= static_cast<float>(ranks + 1) / 2;
    }
    EXPECT_EQ(scaler.scale(), scale);
    EXPECT_EQ(model.first, std::vector<float>(3, wanted));
    EXPECT_EQ(model.second, std::vector<float>(5, 2 * wanted));
  }
  EXPECT_EQ(scaler.skipped(), skipped);
}

TEST(LossScaler, SkipsAStepOnAllRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    kolo::run_local(ranks, [ranks] {
      Model replicated, sharded;
      kolo::Sgd inner = sgd(replicated.list);
      kolo::DistributedOptimizer distributed(inner, replicated.list);
      expect_skips(replicated, distributed, ranks, 9);
      kolo::ShardedOptimizerOptions options;
      options.reduction.name = "sharded";
      kolo::ShardedOptimizer optimizer(sharded.list, sgd, options);
      expect_skips(sharded, optimizer, ranks, 9);
    });
  }
}

TEST(LossScaler, ClipsWhatIsUnscaled) {
  kolo::run_local(2, [] {
    Model model;
    kolo::ShardedOptimizer optimizer(model.list, sgd, kolo::ShardedOptimizerOptions().with_max_norm(1));
    LossScaler scaler;
    model.backward(scaler.scale(), false);
    EXPECT_TRUE(optimizer.step(scaler));
    const double norm = std::sqrt(3 * 1.5 * 1.5 + 5 * 3.0 * 3.0);
    EXPECT_NEAR(optimizer.norm().value(), norm, 1e-6);
    EXPECT_NEAR(model.first[0], -1.5 / norm, 1e-6);
    EXPECT_NEAR(model.second[4], -3.0 / norm, 1e-6);
  });
}

TEST(LossScaler, FollowsWithoutData) {
  kolo::run_local(3, [] {
    Model model;
    kolo::ShardedOptimizer optimizer(model.list, sgd);
    LossScaler scaler;
    for (int step = 0; step < 2 * kolo::rank(); ++step) {
      optimizer.zero_grad();
      model.backward(scaler.scale(), step == 1);
      optimizer.step(scaler);
    }
    optimizer.join(scaler);
    EXPECT_EQ(scaler.skipped(), 1);
    EXPECT_EQ(scaler.scale(), 32768);
    EXPECT_EQ(model.first[0], -(2.5F + 3 + 3));  // of ranks 1 and 2, then of rank 2 alone
  });
}

TEST(LossScaler, SaysSoWhenEachStepIsSkipped) {
  const auto sentence_after = [](kolo::LossScaler& scaler, int good_ones) {
    for (int i = 0; i < good_ones; ++i) scaler.update(true);
    return kolo::testing::sentence_of(kolo::ErrorCode::invalid_argument, [&] { scaler.update(true); });
  };
  const auto sentence = [](int steps) {
    return "LossScaler: " + std::to_string(steps) +
           " steps in a row were skipped, though the loss scale cannot become less: gradients are infinite or no "
           "numbers "
           "whatever the scale is. Look for the first with KOLO_CHECK_NAN=1, or lower min_loss_scale";
  };
  kolo::LossScaler fixed(kolo::LossScalerOptions().with_loss_scale(4));
  EXPECT_EQ(sentence_after(fixed, 99), sentence(100));
  EXPECT_EQ(sentence_after(fixed, 0), sentence(101));
  fixed.update(false);
  EXPECT_EQ(sentence_after(fixed, 99), sentence(100));
  kolo::LossScaler follows(kolo::LossScalerOptions().with_initial_scale_power(4));
  EXPECT_EQ(sentence_after(follows, 4 + 99), sentence(100));  // after 8, 4, 2 and 1
  EXPECT_EQ(follows.scale(), 1);
  EXPECT_EQ(follows.skipped(), 104);
}

}  // namespace
