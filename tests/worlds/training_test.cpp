// SPDX-License-Identifier: Apache-2.0
//
// Training on ranks as threads: that N ranks compute what one computes, and what happens when they disagree.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
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
using kolo::testing::InWorlds;
using kolo::testing::name_of;
using kolo::testing::run_in;
using kolo::testing::World;
using kolo::testing::worlds;

// What every rank threw, by rank. A rank that throws nothing says so.
std::vector<std::string> errors_of_all(const World& world, const std::function<void()>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world.ranks));
  run_in(world, [&] {
    errors[static_cast<std::size_t>(kolo::rank())] = error_of(body);
    EXPECT_EQ(kolo::allreduce(1, kolo::ReduceOp::sum), kolo::size()) << "the job goes on";
  });
  return errors;
}

// Counts its steps; leaves values and gradients alone.
struct Counter {
  int steps = 0;
  void step() { ++steps; }
  void zero_grad() {}
};

class Training : public InWorlds {};

INSTANTIATE_TEST_SUITE_P(Shapes, Training, worlds({{1, 0}, {2, 0}, {4, 0}, {4, 1}, {4, 2}, {3, 2}}), name_of);

TEST_P(Training, BroadcastGivesEveryoneTheRootsValues) {
  run([] {
    Model<float> model;
    auto& a = model.add("a", {static_cast<float>(kolo::rank()), 1.0F});
    std::vector<std::int64_t> counts{kolo::rank() + 10};
    std::vector<kolo::Parameter> parameters = model.parameters();
    parameters.push_back({"counts", kolo::view(counts)});
    a.gradient = {5.0F, 6.0F};
    const int root = kolo::size() - 1;
    kolo::broadcast_parameters(parameters, root);
    EXPECT_EQ(a.value, (std::vector<float>{static_cast<float>(root), 1.0F}));
    EXPECT_EQ(a.gradient, (std::vector<float>{5.0F, 6.0F})) << "gradients stay";
    EXPECT_EQ(counts[0], root + 10) << "a buffer is broadcast too";
    kolo::broadcast_parameters({}, root);  // nothing to do, together
  });
}

TEST_P(Training, BroadcastOfOptimizerState) {
  run([] {
    Model<double> model;
    auto& w = model.add("w", {1.0, 2.0});
    kolo::AdamW adamw(model.parameters(), {0.1 * (kolo::rank() + 1)});
    for (int step = 0; step <= kolo::rank(); ++step) {
      w.gradient = {1.0 + kolo::rank(), 2.0};
      adamw.step();
    }
    kolo::broadcast_parameters(model.parameters());
    kolo::broadcast_optimizer_state(adamw);
    EXPECT_EQ(adamw.learning_rate(), 0.1);
    w.gradient = {0.5, 0.25};
    adamw.step();
    for (const double first : kolo::allgather_object(w.value[0])) {
      EXPECT_EQ(first, w.value[0]) << "equal state, equal steps";
    }
  });
}

TEST_P(Training, AveragesOverTheSizeAndStepsOnce) {
  run([] {
    Model<float> model;
    auto& a = model.add("a", {0.0F, 0.0F});
    auto& b = model.add("b", {0.0F});
    Counter counter;
    DistributedOptimizer optimizer(counter, model.parameters());
    for (int step = 1; step <= 4; ++step) {
      a.gradient = {static_cast<float>(kolo::rank() + step), 2.0F};
      b.gradient = {static_cast<float>(kolo::rank() * 2)};
      EXPECT_TRUE(optimizer.step());
      const float mean_rank = static_cast<float>(kolo::size() - 1) / 2.0F;
      EXPECT_EQ(a.gradient, (std::vector<float>{mean_rank + static_cast<float>(step), 2.0F}));
      EXPECT_EQ(b.gradient[0], 2 * mean_rank);
      EXPECT_EQ(counter.steps, step);
    }
  });
}

TEST_P(Training, SumsWhenAsked) {
  run([] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    Counter counter;
    DistributedOptimizer optimizer(
        counter, model.parameters(),
        DistributedOptimizerOptions{}.with_op(kolo::ReduceOp::sum).with_accumulation_steps(2));
    a.gradient = {3.0};
    EXPECT_FALSE(optimizer.step());
    a.gradient[0] += 2.0;
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(a.gradient[0], 5.0 * kolo::size()) << "over ranks and micro-steps";
    EXPECT_EQ(error_of([&] { optimizer.step(1); }),
              "invalid_argument: DistributedOptimizer: samples weigh an average; with op sum they have no meaning");
  });
}

TEST_P(Training, AnnouncementsComeInAnyOrder) {
  run([] {
    constexpr std::size_t kTensors = 12;
    Model<double> model;
    std::vector<kolo::test::Vector<double>*> tensors;
    for (std::size_t i = 0; i < kTensors; ++i) {
      tensors.push_back(&model.add("t" + std::to_string(i), std::vector<double>(i * 37 + 1)));
    }
    Counter counter;
    DistributedOptimizer optimizer(counter, model.parameters());
    std::mt19937 random(static_cast<unsigned>(kolo::rank()));
    std::vector<std::size_t> order(kTensors);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int step = 0; step < 20; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      const std::size_t announced = random() % (kTensors + 1);  // the rest is left to step()
      for (std::size_t i = 0; i < kTensors; ++i) {
        std::fill(tensors[i]->gradient.begin(), tensors[i]->gradient.end(),
                  static_cast<double>(kolo::rank()) + static_cast<double>(i) * step);
      }
      for (std::size_t k = 0; k < announced; ++k) {
        optimizer.gradient_ready(order[k]);
      }
      ASSERT_TRUE(optimizer.step());
      for (std::size_t i = 0; i < kTensors; ++i) {
        const double wanted = (kolo::size() - 1) / 2.0 + static_cast<double>(i) * step;
        ASSERT_EQ(tensors[i]->gradient, std::vector<double>(i * 37 + 1, wanted)) << "tensor " << i << ", step " << step;
      }
    }
  });
}

TEST_P(Training, AGradientThatARankDidNotProduceCountsAsZero) {
  run([] {
    Model<float> model;
    auto& used = model.add("used", {0.0F});
    auto& sometimes = model.add("sometimes", {0.0F});
    kolo::Sgd sgd(model.parameters(), {1.0});
    DistributedOptimizer optimizer(sgd, model.parameters());
    used.gradient = sometimes.gradient = {99.0F};  // of a step before
    optimizer.zero_grad();
    used.gradient = {1.0F};
    optimizer.gradient_ready(0);
    if (kolo::rank() == 0) {
      sometimes.gradient = {8.0F};
      optimizer.gradient_ready(1);
    }
    optimizer.step();
    EXPECT_EQ(used.value[0], -1.0F);
    EXPECT_EQ(sometimes.value[0], -8.0F / static_cast<float>(kolo::size()));
  });
}

TEST_P(Training, UnevenBatchesAreWeightedBySamples) {
  run([] {
    Model<double> model;
    auto& w = model.add("w", {0.0, 0.0});
    Counter counter;
    DistributedOptimizer optimizer(counter, model.parameters());
    for (int step = 0; step < 6; ++step) {
      const bool early = step % 2 == 1;
      double all = 0, weighted = 0;
      for (int rank = 0; rank < kolo::size(); ++rank) {
        const int samples = (rank + step) % 3 + 1;
        all += samples;
        weighted += samples * (rank + 0.5);
      }
      const auto samples = static_cast<std::size_t>((kolo::rank() + step) % 3 + 1);
      if (early) {
        optimizer.begin_micro_step(samples);
      }
      w.gradient = {kolo::rank() + 0.5, 4.0};
      if (early) {
        optimizer.gradient_ready(0);
        optimizer.step();
      } else {
        optimizer.step(samples);
      }
      EXPECT_NEAR(w.gradient[0], weighted / all, 1e-15 * weighted);
      EXPECT_NEAR(w.gradient[1], 4.0, 4e-15);
    }
    EXPECT_EQ(counter.steps, 6);
  });
}

TEST_P(Training, EqualSamplesChangeNothing) {
  run([] {
    Model<float> plain, weighted;
    auto& p = plain.add("p", {0.0F});
    auto& w = weighted.add("w", {0.0F});
    Counter counter;
    DistributedOptimizer one(counter, plain.parameters()), other(counter, weighted.parameters());
    p.gradient = w.gradient = {0.1F + static_cast<float>(kolo::rank()) / 3.0F};
    one.step();
    other.step(7);
    EXPECT_EQ(p.gradient, w.gradient) << "bit for bit";
  });
}

TEST_P(Training, ARankWithoutSamplesCountsNothing) {
  run([] {
    Model<double> model;
    auto& w = model.add("w", {0.0});
    Counter counter;
    DistributedOptimizer optimizer(counter, model.parameters());
    const bool idle = kolo::rank() > 0;
    w.gradient = {idle ? std::numeric_limits<double>::quiet_NaN() : 3.0};  // 0/0: the mean of no samples
    optimizer.step(idle ? 0 : 5);
    EXPECT_NEAR(w.gradient[0], 3.0, 4e-15);
    w.gradient = {std::numeric_limits<double>::quiet_NaN()};
    optimizer.step(0);
    EXPECT_EQ(w.gradient[0], 0.0) << "nobody had samples";
  });
}

TEST_P(Training, AccumulationEqualsOneBigBatch) {
  run([] {
    Model<double> model;
    auto& w = model.add("w", {1.0});
    kolo::Sgd sgd(model.parameters(), {1.0});
    DistributedOptimizer optimizer(sgd, model.parameters(), DistributedOptimizerOptions{}.with_accumulation_steps(4));
    for (int step = 0; step < 3; ++step) {
      const double before = w.value[0];
      double mean = 0;
      for (int micro = 0; micro < 4; ++micro) {
        optimizer.zero_grad();  // does nothing but at the start of a step
        w.gradient[0] += kolo::rank() + micro * 8;
        mean += ((kolo::size() - 1) / 2.0 + micro * 8) / 4;
        optimizer.gradient_ready(0);
        EXPECT_EQ(optimizer.step(), micro == 3);
        EXPECT_EQ(w.value[0], micro == 3 ? before - mean : before);
      }
    }
  });
}

TEST_P(Training, AccumulationWithSamplesWeighsTheirSum) {
  run([] {
    Model<double> model;
    auto& w = model.add("w", {0.0});
    Counter counter;
    DistributedOptimizer optimizer(counter, model.parameters(),
                                   DistributedOptimizerOptions{}.with_accumulation_steps(2));
    double all = 0, weighted = 0;
    for (int rank = 0; rank < kolo::size(); ++rank) {
      all += 2 * rank + 3;
      weighted += (rank + 1) * rank + (rank + 2) * (rank + 2.0);
    }
    const auto rank = static_cast<std::size_t>(kolo::rank());
    optimizer.begin_micro_step(rank + 1);
    w.gradient = {kolo::rank() + 0.0};
    EXPECT_FALSE(optimizer.step());
    EXPECT_EQ(error_of([&] { optimizer.step(); }),
              "invalid_argument: DistributedOptimizer: this step's earlier micro-steps gave their samples; each must, "
              "by begin_micro_step(samples)");
    optimizer.begin_micro_step(rank + 2);
    w.gradient[0] += kolo::rank() + 2.0;
    EXPECT_TRUE(optimizer.step());
    EXPECT_NEAR(w.gradient[0], weighted / all, 1e-14);
  });
}

TEST_P(Training, ClippingSeesReducedGradients) {
  run([] {
    Model<double> model;
    auto& w = model.add("w", {0.0, 0.0});
    kolo::Sgd sgd(model.parameters(), {1.0});
    DistributedOptimizer optimizer(sgd, model.parameters());
    w.gradient = {6.0 * kolo::size(), 8.0};
    if (kolo::rank() > 0) {
      w.gradient[0] = 0;
    }
    EXPECT_TRUE(optimizer.synchronize());
    EXPECT_TRUE(optimizer.synchronize()) << "a second call has nothing to do";
    EXPECT_EQ(kolo::clip_grad_norm(model.parameters(), 5.0), 10.0);
    EXPECT_TRUE(optimizer.step());
    EXPECT_NEAR(w.value[0], -3.0, 1e-6);
    EXPECT_NEAR(w.value[1], -4.0, 1e-6) << "step() has not reduced again";
    w.gradient = {1.0, 1.0};
    optimizer.step();
    EXPECT_NEAR(w.value[0], -4.0, 1e-6) << "but the next one does";
  });
}

TEST_P(Training, MisuseIsAnErrorAndChangesNothing) {
  run([] {
    Model<double> model;
    auto& a = model.add("a", {0.0});
    model.add("b", {0.0});
    std::vector<double> mean{0.0};
    std::vector<kolo::Parameter> parameters = model.parameters();
    parameters.push_back({"mean", kolo::view(mean)});
    kolo::Sgd sgd(parameters, {1.0});
    DistributedOptimizer optimizer(sgd, parameters);
    a.gradient = {static_cast<double>(kolo::rank())};
    optimizer.gradient_ready(0);
    EXPECT_EQ(
        error_of([&] { optimizer.gradient_ready(0); }),
        "invalid_argument: DistributedOptimizer: gradient_ready(0): \"a\" was announced already in this micro-step");
    EXPECT_EQ(error_of([&] { optimizer.gradient_ready(2); }),
              "invalid_argument: DistributedOptimizer: gradient_ready(2): \"mean\" is a buffer and has no gradient");
    EXPECT_EQ(
        error_of([&] { optimizer.gradient_ready(3); }),
        "invalid_argument: DistributedOptimizer: gradient_ready(3): there is no such parameter; there are 3, numbered "
        "from 0");
    EXPECT_EQ(error_of([&] { optimizer.zero_grad(); }),
              "invalid_argument: DistributedOptimizer: zero_grad() while gradients are being reduced; step() or "
              "synchronize() comes first");
    EXPECT_EQ(error_of([&] { optimizer.begin_micro_step(1); }),
              "invalid_argument: DistributedOptimizer: a micro-step's samples must be given before its first "
              "gradient_ready()");
    optimizer.synchronize();
    EXPECT_EQ(error_of([&] { optimizer.gradient_ready(1); }),
              "invalid_argument: DistributedOptimizer: gradient_ready(1): \"b\" was reduced by synchronize() already; "
              "step() comes next");
    EXPECT_TRUE(optimizer.step());
    EXPECT_EQ(a.value[0], -(kolo::size() - 1) / 2.0);
    optimizer.begin_micro_step(1);
    EXPECT_EQ(error_of([&] { optimizer.begin_micro_step(1); }),
              "invalid_argument: DistributedOptimizer: this micro-step's samples were given already");
    optimizer.step();
  });
}

TEST_P(Training, OptimizersOverDifferentParametersLiveSideBySide) {
  run([] {
    Model<float> generator, discriminator;
    auto& g = generator.add("g", {0.0F});
    auto& d = discriminator.add("d", {0.0F});
    Counter counter;
    DistributedOptimizer first(counter, generator.parameters()), second(counter, discriminator.parameters());
    g.gradient = {static_cast<float>(kolo::rank())};
    d.gradient = {10.0F};
    first.gradient_ready(0);
    second.step();
    first.step();
    EXPECT_EQ(g.gradient[0], static_cast<float>(kolo::size() - 1) / 2.0F);
    EXPECT_EQ(d.gradient[0], 10.0F);

    const std::string clash = error_of([&] { DistributedOptimizer(counter, generator.parameters()); });
    EXPECT_EQ(clash.substr(0, 15), "duplicate_name:") << clash;
    EXPECT_NE(clash.find("\"gradients/g\""), std::string::npos) << clash;
    EXPECT_NE(clash.find("optimizers whose parameters share names need names of their own "
                         "(DistributedOptimizerOptions::name)"),
              std::string::npos)
        << clash;
    DistributedOptimizer third(counter, generator.parameters(), DistributedOptimizerOptions{}.with_name("third"));
    EXPECT_TRUE(third.step());
  });
}

TEST_P(Training, TheOptimizersListMustBeTheSame) {
  run([] {
    Model<float> model;
    model.add("a", {0.0F});
    model.add("b", {0.0F});
    const std::vector<kolo::Parameter> both = model.parameters();
    const std::vector<kolo::Parameter> first{both[0]};
    kolo::Sgd sgd(both);
    kolo::AdamW adamw(first);
    EXPECT_EQ(error_of([&] { DistributedOptimizer(sgd, first); }),
              "invalid_argument: DistributedOptimizer: the optimizer steps \"b\", which is not in the list of "
              "parameters; its gradient would not be reduced");
    EXPECT_EQ(error_of([&] { DistributedOptimizer(adamw, both); }),
              "invalid_argument: DistributedOptimizer: \"b\" is in the list of parameters, but the optimizer does not "
              "step it; give both the same list");
    std::vector<kolo::Parameter> moved = both;
    const kolo::GradientArena arena(moved);
    EXPECT_EQ(error_of([&] { DistributedOptimizer(sgd, moved); }),
              "invalid_argument: DistributedOptimizer: the optimizer steps \"a\" with other memory than the list of "
              "parameters has; make the optimizer from that list (and a GradientArena before both)");
    const std::vector<kolo::Parameter> backwards{both[1], both[0]};
    EXPECT_TRUE(DistributedOptimizer(sgd, backwards).step()) << "the order does not matter";
  });
}

TEST_P(Training, AGradientIsLikeItsValue) {
  run([] {
    std::vector<float> x(6), short_one(3);
    std::vector<double> wide(6);
    Counter counter;
    EXPECT_EQ(error_of([&] {
                DistributedOptimizer(counter, {{"x", kolo::view(x.data(), {2, 3}), kolo::view(short_one)}});
              }),
              "invalid_argument: DistributedOptimizer: the gradient of \"x\" is float32 [3], its value float32 [2, 3]; "
              "they must have the same type and shape");
    EXPECT_EQ(error_of([&] {
                DistributedOptimizer(counter, {{"x", kolo::view(x), kolo::view(wide)}});
              }),
              "invalid_argument: DistributedOptimizer: the gradient of \"x\" is float64 [6], its value float32 [6]; "
              "they must have the same type and shape");
    kolo::barrier();
  });
}

TEST_P(Training, BadListsAreRefusedHereAndNow) {
  run([] {
    std::vector<float> x(2);
    Counter counter;
    const std::vector<kolo::Parameter> twice{{"x", kolo::view(x), kolo::view(x)}, {"x", kolo::view(x), kolo::view(x)}};
    EXPECT_EQ(error_of([&] { kolo::broadcast_parameters(twice); }),
              "invalid_argument: broadcast_parameters: two entries are named \"x\"; names must differ");
    EXPECT_EQ(error_of([&] { DistributedOptimizer(counter, twice); }),
              "invalid_argument: DistributedOptimizer: two entries are named \"x\"; names must differ");
    const std::vector<kolo::Parameter> nameless{{"", kolo::view(x), kolo::view(x)}};
    EXPECT_EQ(error_of([&] { kolo::broadcast_parameters(nameless); }),
              "invalid_argument: broadcast_parameters: entry 0 has no name; every one needs its own");
    const std::vector<kolo::Parameter> good{{"x", kolo::view(x), kolo::view(x)}};
    EXPECT_EQ(error_of([&] { kolo::broadcast_parameters(good, kolo::size()); }),
              "invalid_argument: broadcast_parameters: root " + std::to_string(kolo::size()) +
                  " is no rank; ranks are 0 to " + std::to_string(kolo::size() - 1));
    EXPECT_EQ(error_of([&] {
                DistributedOptimizer(counter, good, DistributedOptimizerOptions{}.with_accumulation_steps(0));
              }),
              "invalid_argument: DistributedOptimizer: accumulation_steps is 0; it must be 1 or more");
    EXPECT_EQ(error_of([&] {
                DistributedOptimizer(counter, good, DistributedOptimizerOptions{}.with_op(kolo::ReduceOp::max));
              }),
              "invalid_argument: DistributedOptimizer: op is max; gradients are averaged or summed");
    std::vector<std::int32_t> integers(2);
    const std::vector<kolo::Parameter> whole{{"n", kolo::view(integers), kolo::view(integers)}};
    const std::string refused = error_of([&] { DistributedOptimizer(counter, whole); });
    EXPECT_EQ(refused.substr(0, 17), "invalid_argument:") << refused;
    kolo::barrier();
  });
}

// Lists that disagree are told at once, in the same words everywhere; nobody waits for a name that is not coming.
TEST(TrainingDisagreement, AnotherShape) {
  const std::vector<std::string> errors = errors_of_all({3, 0}, [] {
    std::vector<float> w(6), b(2);
    const kolo::Shape shape = kolo::rank() == 1 ? kolo::Shape{3, 2} : kolo::Shape{2, 3};
    kolo::broadcast_parameters({{"b", kolo::view(b)}, {"w", kolo::view(w.data(), shape)}});
  });
  EXPECT_EQ(errors, std::vector<std::string>(
                        3, "mismatch: broadcast_parameters: ranks disagree: ranks 0 and 2 have \"w float32 "
                           "[2, 3]\"; rank 1 has \"w float32 [3, 2]\""));
}

TEST(TrainingDisagreement, AnotherNameOrTypeOrNumberOrRoot) {
  std::vector<float> w(6), b(2);
  std::vector<double> d(2);
  const auto told = [&](const std::function<std::vector<kolo::Parameter>()>& list, int roots = 0) {
    const std::vector<std::string> errors =
        errors_of_all({2, 1}, [&] { kolo::broadcast_parameters(list(), roots * kolo::rank()); });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  const std::string begin = "mismatch: broadcast_parameters: ranks disagree: ";
  EXPECT_EQ(told([&] {
              return std::vector<kolo::Parameter>{{kolo::rank() == 0 ? "w" : "v", kolo::view(w)}};
            }),
            begin + "rank 0 has \"w float32 [6]\"; rank 1 has \"v float32 [6]\"");
  EXPECT_EQ(told([&] {
              return std::vector<kolo::Parameter>{{"b", kolo::rank() == 0 ? kolo::view(b) : kolo::view(d)}};
            }),
            begin + "rank 0 has \"b float32 [2]\"; rank 1 has \"b float64 [2]\"");
  EXPECT_EQ(told([&] {
              std::vector<kolo::Parameter> list{{"b", kolo::view(b)}, {"w", kolo::view(w)}};
              list.resize(2U - static_cast<std::size_t>(kolo::rank()), list[0]);
              return list;
            }),
            begin + "rank 0 has \"w float32 [6]\"; rank 1 has nothing (the list is over)");
  EXPECT_EQ(told(
                [&] {
                  return std::vector<kolo::Parameter>{{"b", kolo::view(b)}};
                },
                1),
            begin + "rank 0 has \"root 0\"; rank 1 has \"root 1\"");
}

TEST(TrainingDisagreement, OptimizersThatDiffer) {
  const auto told = [&](const std::function<void(const std::vector<kolo::Parameter>&)>& make) {
    const std::vector<std::string> errors = errors_of_all({2, 0}, [&] {
      std::vector<float> w(6);
      make({{"w", kolo::view(w), kolo::view(w)}});
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  Counter counter;
  const std::string begin = "mismatch: DistributedOptimizer(gradients): ranks disagree: ";
  EXPECT_EQ(told([&](const std::vector<kolo::Parameter>& list) {
              DistributedOptimizer(counter, list,
                                   DistributedOptimizerOptions{}.with_accumulation_steps(kolo::rank() + 1));
            }),
            begin + "rank 0 has \"accumulation_steps 1\"; rank 1 has \"accumulation_steps 2\"");
  EXPECT_EQ(told([&](std::vector<kolo::Parameter> list) {
              if (kolo::rank() == 1) {
                list[0].gradient.reset();
              }
              DistributedOptimizer(counter, list);
            }),
            begin + "rank 0 has \"w float32 [6]\"; rank 1 has \"w without gradient\"");
  EXPECT_EQ(told([&](const std::vector<kolo::Parameter>& list) {
              kolo::Sgd sgd(list, {0.1, 0.5 * kolo::rank()});
              kolo::broadcast_optimizer_state(sgd);
            }),
            "mismatch: broadcast_optimizer_state: ranks disagree: rank 0 has nothing (the list is over); "
            "rank 1 has \"momentum/w float32 [6]\"");
}

// A name may hold any bytes. Ranks compare names whole; sentences show them on one line and in part.
const std::string kLong(10000, 'x');
const std::string kLongShown = "\"" + std::string(100, 'x') + "...\" (";

TEST(TrainingNames, OfAnyBytesMakeATrainer) {
  const std::vector<std::string> names{"a\nb",      "a",         "b",         "\x1b[2J\x01",
                                       "say \"w\"", kLong + "a", kLong + "b", std::string("\0", 1)};
  for (const std::string& optimizers : {std::string("line\nbreak"), kLong}) {
    kolo::run_local(2, [&] {
      Model<float> model;
      for (const std::string& name : names) model.add(name, {static_cast<float>(kolo::rank())});
      kolo::broadcast_parameters(model.parameters(), 1);
      kolo::Sgd sgd(model.parameters(), {1.0, 0.9});
      kolo::broadcast_optimizer_state(sgd);
      DistributedOptimizer optimizer(sgd, model.parameters(), DistributedOptimizerOptions{}.with_name(optimizers));
      for (const auto& parameter : model.parameters()) {
        static_cast<float*>(parameter.gradient->data())[0] = static_cast<float>(kolo::rank());
      }
      optimizer.step();
      for (const auto& parameter : model.parameters()) {
        EXPECT_EQ(static_cast<float*>(parameter.value.data())[0], 0.5F) << parameter.name.size();
      }
    });
  }
}

TEST(TrainingNames, InSentencesAboutDisagreements) {
  std::vector<float> w(6);
  const auto told = [&](const std::vector<std::string>& names) {
    const std::vector<std::string> errors = errors_of_all({static_cast<int>(names.size()), 0}, [&] {
      kolo::broadcast_parameters({{names[static_cast<std::size_t>(kolo::rank())], kolo::view(w)}});
    });
    EXPECT_EQ(errors, std::vector<std::string>(names.size(), errors[0]));
    return errors[0];
  };
  const std::string begin = "mismatch: broadcast_parameters: ranks disagree: ";
  EXPECT_EQ(told({"a\nb", "a\tb"}), begin + "rank 0 has \"a\\nb float32 [6]\"; rank 1 has \"a\\tb float32 [6]\"");
  EXPECT_EQ(told({"\x1b[2J", "say \"w\""}),
            begin + "rank 0 has \"\\x1b[2J float32 [6]\"; rank 1 has \"say \\\"w\\\" float32 [6]\"");
  EXPECT_EQ(told({kLong + "a", kLong + "b", kLong + "a"}),
            begin + "ranks 0 and 2 have " + kLongShown + "10013 bytes; after the first 10000: \"a float32 [6]\"); " +
                "rank 1 has " + kLongShown + "10013 bytes; after the first 10000: \"b float32 [6]\")");
  EXPECT_EQ(told({kLong, "y"}), begin + "rank 0 has " + kLongShown + "10012 bytes); rank 1 has \"y float32 [6]\"");
}

// What one name with a line break says, and two names without one, are not the same list.
TEST(TrainingNames, ALineBreakIsNoNewEntry) {
  std::vector<float> w(6);
  const std::vector<std::string> errors = errors_of_all({2, 1}, [&] {
    std::vector<kolo::Parameter> list{{"a", kolo::view(w)}, {"b", kolo::view(w)}};
    if (kolo::rank() == 1) list = {{"a float32 [6]\nb", kolo::view(w)}};
    kolo::broadcast_parameters(list);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2, "mismatch: broadcast_parameters: ranks disagree: rank 0 has "
                                                "\"a float32 [6]\"; rank 1 has \"a float32 [6]\\nb float32 [6]\""));
}

TEST(TrainingNames, InSentencesOfOneRank) {
  std::vector<float> w(6);
  const std::string odd = "a\n\"b\"";
  const std::string odd_shown = "\"a\\n\\\"b\\\"\"";
  const auto both = [&](const std::function<std::string(const std::string&)>& told, const std::string& before,
                        const std::string& after) {
    EXPECT_EQ(told(odd), before + odd_shown + after);
    EXPECT_EQ(told(kLong), before + kLongShown + "10000 bytes)" + after);
  };
  kolo::run_local(1, [&] {
    Counter counter;
    const auto one = [&](const std::string& name) {
      return std::vector<kolo::Parameter>{{name, kolo::view(w), kolo::view(w)}};
    };
    both(
        [&](const std::string& name) {
          return error_of([&] { kolo::broadcast_parameters({one(name)[0], one(name)[0]}); });
        },
        "invalid_argument: broadcast_parameters: two entries are named ", "; names must differ");
    both(
        [&](const std::string& name) {
          return error_of([&] {
            DistributedOptimizer(counter, {{name, kolo::view(w), kolo::view(w.data(), {2, 3})}});
          });
        },
        "invalid_argument: DistributedOptimizer: the gradient of ",
        " is float32 [2, 3], its value float32 [6]; they must have the same type and shape");
    both(
        [&](const std::string& name) {
          kolo::Sgd sgd(one(name), {0.1});
          return error_of([&] { DistributedOptimizer(sgd, one("other")); });
        },
        "invalid_argument: DistributedOptimizer: the optimizer steps ",
        ", which is not in the list of parameters; its gradient would not be reduced");
    both(
        [&](const std::string& name) {
          kolo::Sgd sgd({}, {0.1});
          return error_of([&] { DistributedOptimizer(sgd, one(name)); });
        },
        "invalid_argument: DistributedOptimizer: ",
        " is in the list of parameters, but the optimizer does not step it; give both the same list");
    both(
        [&](const std::string& name) {
          DistributedOptimizer optimizer(counter, one(name));
          optimizer.gradient_ready(0);
          return error_of([&] { optimizer.gradient_ready(0); });
        },
        "invalid_argument: DistributedOptimizer: gradient_ready(0): ", " was announced already in this micro-step");
    both(
        [&](const std::string& name) {
          std::vector<std::uint16_t> memory(2);
          const kolo::TensorView narrow(memory.data(), kolo::DType::bfloat16, kolo::Shape{2});
          DistributedOptimizer optimizer(counter, {{name, narrow, narrow}});
          return error_of([&] { optimizer.begin_micro_step(1); });
        },
        "unsupported: DistributedOptimizer: samples: weigh ",
        ", which is bfloat16; only float32 and float64 are supported");
    both(
        [&](const std::string& name) {
          std::vector<std::int32_t> whole(2);
          return error_of([&] { kolo::clip_grad_norm({{name, kolo::view(whole), kolo::view(whole)}}, 1.0); });
        },
        "unsupported: clip_grad_norm: the gradient of ", " is int32; only float32 and float64 are supported");
    both(
        [&](const std::string& name) {
          return error_of([&] {
            kolo::Sgd({{name, kolo::view(static_cast<float*>(nullptr), 4), kolo::view(w)}}, {0.1});
          });
        },
        "invalid_argument: Sgd: ", " is a null pointer");
  });
}

TEST(TrainingBuffers, AreRankZerosAfterEachStep) {
  run_in({3, 0}, [] {
    std::vector<float> weight(5), gradient(5), mean(2);
    const std::vector<kolo::Parameter> list{{"w", kolo::view(weight), kolo::view(gradient)},
                                            {"mean", kolo::view(mean)}};
    const auto options = DistributedOptimizerOptions{}.with_broadcast_buffers(true);
    const auto check = [&](auto& optimizer) {
      for (int step = 0; step < 3; ++step) {
        mean.assign(2, static_cast<float>(10 * step + kolo::rank()));
        optimizer.step();
        EXPECT_EQ(mean, std::vector<float>(2, static_cast<float>(10 * step)));
      }
    };
    kolo::Sgd sgd(list);
    DistributedOptimizer optimizer(sgd, list, options);
    check(optimizer);
    kolo::ShardedOptimizer sharded(
        list, [](kolo::Span<const kolo::Parameter> mine) { return kolo::Sgd(mine); },
        kolo::ShardedOptimizerOptions{}.with_reduction(DistributedOptimizerOptions(options).with_name("sharded")));
    check(sharded);
    DistributedOptimizer apart(sgd, list, DistributedOptimizerOptions{}.with_name("apart"));
    mean.assign(2, static_cast<float>(kolo::rank()));
    apart.step();
    EXPECT_EQ(mean, std::vector<float>(2, static_cast<float>(kolo::rank())));
  });
}

// The optimizer's own name, and an arena's, which stand in the middle of a word.
TEST(TrainingNames, OfTheOptimizerAndTheArena) {
  const auto told = [](const std::string& name) {
    const std::vector<std::string> errors = errors_of_all({2, 0}, [&] {
      std::vector<float> w(6);
      Counter counter;
      DistributedOptimizer(counter, {{"w", kolo::view(w), kolo::view(w)}},
                           DistributedOptimizerOptions{}.with_name(name).with_accumulation_steps(kolo::rank() + 1));
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  const std::string wanted =
      ": ranks disagree: rank 0 has \"accumulation_steps 1\"; rank 1 has \"accumulation_steps 2\"";
  EXPECT_EQ(told("a\nb"), "mismatch: DistributedOptimizer(a\\nb)" + wanted);
  EXPECT_EQ(told(kLong), "mismatch: DistributedOptimizer(" + kLong.substr(0, 79) + "... (10022 bytes)" + wanted);
  const std::vector<std::string> arenas = errors_of_all(
      {2, 0}, [] { const kolo::GradientArena arena(static_cast<std::size_t>(kolo::rank() + 1) * 4096, "a\nb"); });
  EXPECT_EQ(arenas, std::vector<std::string>(2, "mismatch: GradientArena(a\\nb): ranks disagree about its size: rank 0 "
                                                "asks for 4096 bytes, rank 1 for 8192"));
}

// A rank that throws in its backward pass: the others' step fails, their optimizer does not step, and nothing of
// theirs is in flight afterwards.
TEST(TrainingFault, ARankThatLeavesFailsTheStepOfTheOthers) {
  std::vector<std::string> errors(3);
  const std::string thrown = error_of([&] {
    run_in({3, 0}, [&] {
      Model<float> model;
      model.add("a", {0.0F});
      model.add("b", {0.0F});
      Counter counter;
      DistributedOptimizer optimizer(counter, model.parameters());
      errors[static_cast<std::size_t>(kolo::rank())] = error_of([&] {
        for (int step = 0;; ++step) {
          optimizer.gradient_ready(1);
          if (kolo::rank() == 1 && step == 3) {
            throw std::runtime_error("out of memory");
          }
          optimizer.step();
        }
      });
      EXPECT_GE(counter.steps, 2);
      EXPECT_LE(counter.steps, 3) << "the third may have been done everywhere but here when rank 1 left";
      EXPECT_EQ(error_of([&] { optimizer.zero_grad(); }), "nothing");
      EXPECT_EQ(error_of([&] { optimizer.gradient_ready(1); }), errors[static_cast<std::size_t>(kolo::rank())]);
    });
  });
  EXPECT_NE(thrown.find("rank 1: out of memory"), std::string::npos) << thrown;
  EXPECT_NE(errors[0].find("rank 1"), std::string::npos) << errors[0];
  EXPECT_NE(errors[2].find("rank 1"), std::string::npos) << errors[2];
}

}  // namespace
