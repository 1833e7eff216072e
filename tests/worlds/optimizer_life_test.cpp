// SPDX-License-Identifier: Apache-2.0
//
// Optimizers that go while what they have started is open, by an exception or not. Afterwards the gradients are
// poisoned, and must stay as they are, whatever the other ranks submit late.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
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

constexpr double kLifePoison = 1234.5;

struct LifeCounter {
  int steps = 0;
  void step() { ++steps; }
  void zero_grad() {}
};

/// Ranks leave here in the middle of first steps, in which the others would compare parameters with them.
void run_lives(int ranks, const std::function<void()>& body) { run_in(ranks, {{"KOLO_CHECK_REPLICAS", "off"}}, body); }

void await_life(const std::atomic<int>& count, int wanted) {
  while (count.load() < wanted) std::this_thread::yield();
}

/// Rank 0 calls `begin`, in a scope that an exception ends; its memory is poisoned afterwards. Only then do the others
/// call `follow`, and are told.
void expect_abandoned(const std::function<void(DistributedOptimizer<LifeCounter>&)>& begin,
                      const std::function<void(DistributedOptimizer<LifeCounter>&)>& follow, const std::string& told) {
  std::atomic<int> made{0}, gone{0}, followed{0};
  run_lives(3, [&] {
    Model<double> model;
    auto& a = model.add("a", std::vector<double>(5000));
    auto& b = model.add("b", std::vector<double>(3));
    LifeCounter none;
    if (kolo::rank() != 0) {
      DistributedOptimizer optimizer(none, model.parameters());
      made.fetch_add(1);
      await_life(gone, 1);
      EXPECT_EQ(error_of([&] { follow(optimizer); }), told);
      followed.fetch_add(1);
      return;
    }
    EXPECT_THROW(
        {
          DistributedOptimizer optimizer(none, model.parameters());
          await_life(made, 2);
          begin(optimizer);
          throw std::out_of_range("in the backward pass");
        },
        std::out_of_range);
    for (auto* vector : {&a, &b}) vector->gradient.assign(vector->gradient.size(), kLifePoison);
    gone.fetch_add(1);
    await_life(followed, 2);
    for (auto* vector : {&a, &b})
      EXPECT_EQ(vector->gradient, std::vector<double>(vector->gradient.size(), kLifePoison));
    EXPECT_EQ(error_of([&] { kolo::barrier(); }), told) << "here, too";
    EXPECT_EQ(none.steps, 0);
  });
}

TEST(UnwindingOptimizer, WhoseGradientIsBeingReduced) {
  expect_abandoned(
      [](auto& optimizer) { optimizer.gradient_ready(0); }, [](auto& optimizer) { optimizer.step(); },
      "user_exception: rank 0 left the job because of an exception: it destroyed the handle of an open operation "
      "(allreduce of float64 [5000], op average). The contents of the buffers in flight are undefined.");
}

/// Where the sums are the optimizer's own memory.
TEST(UnwindingOptimizer, ThatHasSaidItsSamples) {
  expect_abandoned(
      [](auto& optimizer) { optimizer.begin_micro_step(3); }, [](auto& optimizer) { optimizer.step(4); },
      "user_exception: rank 0 left the job because of an exception: it destroyed the handle of an open operation "
      "(allreduce of float64 [5], op sum). The contents of the buffers in flight are undefined.");
}

TEST(UnwindingOptimizer, WithNothingOpenHarmsNobody) {
  run_lives(2, [] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    LifeCounter none;
    for (int turn = 0; turn < 3; ++turn) {
      EXPECT_THROW(
          {
            kolo::detail::GradientReducer reducer(kolo::current_context(), model.parameters(), {});
            a.gradient = {kolo::rank() + 1.0};
            if (turn == 1) reducer.synchronize();
            if (turn == 2) {
              reducer.gradient_ready(0);
              while (reducer.finished() < 1) std::this_thread::yield();  // complete, if not looked at
            }
            throw std::out_of_range("no");
          },
          std::out_of_range);
      EXPECT_EQ(a.gradient[0], turn == 0 ? kolo::rank() + 1.0 : 1.5);
    }
    DistributedOptimizer optimizer(none, model.parameters());
    EXPECT_TRUE(optimizer.step());
  });
}

/// All ranks catch it, and would go on with a new optimizer of the same name: all of them are told, nobody waits.
TEST(UnwindingOptimizer, ByAnExceptionThatAllRanksCatch) {
  std::vector<std::string> errors(3);
  std::atomic<int> made{0};
  run_lives(3, [&] {
    Model<double> model;
    model.add("a", {0.0});
    model.add("b", {0.0});
    LifeCounter none;
    EXPECT_THROW(
        {
          DistributedOptimizer optimizer(none, model.parameters());
          made.fetch_add(1);
          await_life(made, 3);
          if (kolo::rank() == 1) optimizer.gradient_ready(1);
          throw std::out_of_range("everywhere, but not at the same place");
        },
        std::out_of_range);
    errors[static_cast<std::size_t>(kolo::rank())] =
        error_of([&] { DistributedOptimizer<LifeCounter>(none, model.parameters()).step(); });
  });
  EXPECT_EQ(
      errors,
      std::vector<std::string>(
          3,
          "user_exception: rank 1 left the job because of an exception: it destroyed the handle of an open operation "
          "(allreduce of float64 [1], op average). The contents of the buffers in flight are undefined."));
}

/// Without an exception a step that has begun is finished, so that nobody waits, and the name is free afterwards.
TEST(LeavingOptimizer, FinishesTheStep) {
  run_lives(3, [] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    auto& b = model.add("b", {0.0});
    LifeCounter none;
    for (int turn = 0; turn < 4; ++turn) {
      std::optional<DistributedOptimizer<LifeCounter>> optimizer(std::in_place, none, model.parameters());
      a.gradient = {kolo::rank() + 1.0};
      b.gradient = {kolo::rank() + 10.0};
      if (turn == 3) optimizer->begin_micro_step(2);
      optimizer->gradient_ready(kolo::rank() == 2 ? 0 : 1);
      if (turn == 1 && kolo::rank() == 1) optimizer->step();  // the others have left in the middle
      if (turn == 2) {
        DistributedOptimizer<LifeCounter> other(none, {});
        *optimizer = std::move(other);  // assignment is destruction, too
      }
      optimizer.reset();
      EXPECT_EQ(a.gradient[0], 2.0);
      EXPECT_EQ(b.gradient[0], 11.0);
      a.gradient[0] = b.gradient[0] = kLifePoison;
      kolo::barrier();
      EXPECT_EQ(a.gradient[0], kLifePoison);
      EXPECT_EQ(b.gradient[0], kLifePoison);
    }
    EXPECT_EQ(none.steps, kolo::rank() == 1 ? 1 : 0);
  });
}

/// Everything that an optimizer refers to may have gone before it, when nothing of it is open.
TEST(LeavingOptimizer, MayComeAfterItsContext) {
  Model<double> model;
  model.add("a", {1.0});
  LifeCounter none;
  std::optional<kolo::Context> context(std::in_place);
  std::optional<DistributedOptimizer<LifeCounter>> idle(std::in_place, *context, none, model.parameters());
  std::optional<DistributedOptimizer<LifeCounter>> busy(std::in_place, *context, none, model.parameters(),
                                                        DistributedOptimizerOptions{}.with_name("busy"));
  busy->begin_micro_step(1);
  busy->gradient_ready(0);
  context.reset();
  idle.reset();
  busy.reset();
}

TEST(MovedOptimizer, Throws) {
  kolo::Context context;
  Model<double> model;
  auto& a = model.add("a", {1.0});
  LifeCounter none;
  DistributedOptimizer optimizer(context, none, model.parameters());
  DistributedOptimizer taken = std::move(optimizer);
  const std::string moved = "invalid_argument: this DistributedOptimizer was moved from";
  // NOLINTBEGIN(bugprone-use-after-move): that is the test
  EXPECT_EQ(error_of([&] { optimizer.zero_grad(); }), moved);
  EXPECT_EQ(error_of([&] { optimizer.begin_micro_step(1); }), moved);
  EXPECT_EQ(error_of([&] { optimizer.gradient_ready(0); }), moved);
  EXPECT_EQ(error_of([&] { optimizer.synchronize(); }), moved);
  EXPECT_EQ(error_of([&] { optimizer.step(); }), moved);
  EXPECT_EQ(error_of([&] { optimizer.step(1); }), moved);
  EXPECT_EQ(error_of([&] { optimizer.flush(); }), moved);
  // NOLINTEND(bugprone-use-after-move)
  a.gradient = {3.0};
  EXPECT_TRUE(taken.step());
  EXPECT_EQ(none.steps, 1);
}

}  // namespace
