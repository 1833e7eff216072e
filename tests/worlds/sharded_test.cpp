// SPDX-License-Identifier: Apache-2.0
//
// ShardedOptimizer: weights are bitwise those of a DistributedOptimizer around the same optimizer, whatever the number
// of ranks, nodes, micro-steps and samples, and also once ranks have run out of data; and each rank's state is its
// part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <kolo/kolo.hpp>
#include <kolo/training.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Parameter;
using kolo::Shape;
using kolo::Span;
using kolo::testing::run_in;
using kolo::testing::sentence_of;
using kolo::testing::World;

/// A model whose gradients depend on the rank and the micro-step alone. Its tensors have more, as many and fewer
/// elements than there are ranks, and no multiples of their number.
template <class T>
struct Model {
  explicit Model(int seed = 1) {
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{7, 13}, {1}, {1000}, {2, 3}, {0}, {3}, {}}) {
      const auto count = static_cast<std::size_t>(Shape(shape).elements());
      shapes.emplace_back(shape);
      values.emplace_back(count);
      gradients.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) values.back()[i] = number(seed, static_cast<int>(values.size()), i);
    }
    buffer = {1, 2, 3};
    for (std::size_t i = 0; i < values.size(); ++i) {
      list.push_back({"w" + std::to_string(i), kolo::view(values[i].data(), shapes[i]),
                      kolo::view(gradients[i].data(), shapes[i])});
    }
    list.insert(list.begin() + 2, {"mean", kolo::view(buffer), std::nullopt});
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  static T number(int a, int b, std::size_t i) {
    return static_cast<T>(std::sin(1.0 + a * 3.7 + b * 11.1 + static_cast<double>(i) * 0.37));
  }

  /// Adds this rank's gradients of a micro-step.
  void backward(int rank, int micro_step) {
    for (std::size_t t = 0; t < list.size(); ++t) {
      if (!list[t].gradient) continue;
      T* const gradient = static_cast<T*>(list[t].gradient->data());
      const auto count = static_cast<std::size_t>(list[t].gradient->elements());
      for (std::size_t i = 0; i < count; ++i) {
        gradient[i] += number(rank * 5 + micro_step * 17, static_cast<int>(t), i);
      }
    }
  }

  /// Puts the gradients elsewhere, and zeroes them.
  void move_gradients() {
    for (std::size_t t = 0, i = 0; t < list.size(); ++t) {
      if (!list[t].gradient) continue;
      gradients[i] = std::vector<T>(gradients[i].size());
      list[t].gradient = kolo::view(gradients[i].data(), shapes[i]);
      ++i;
    }
  }

  std::vector<Shape> shapes;
  std::vector<std::vector<T>> values, gradients;
  std::vector<T> buffer;
  std::vector<Parameter> list;
};

template <class T>
struct Kind {
  using Element = T;
};
template <class K>
class Sharded : public testing::Test {};
using Elements = testing::Types<Kind<float>, Kind<double>>;
TYPED_TEST_SUITE(Sharded, Elements, );

const std::vector<World> kWorlds{{1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 2}, {3, 1}, {5, 2}};

kolo::AdamW adamw(Span<const Parameter> of) {
  return kolo::AdamW(of, kolo::AdamWOptions().with_learning_rate(0.05).with_weight_decay(0.1));
}
kolo::Sgd sgd(Span<const Parameter> of) {
  return kolo::Sgd(of, kolo::SgdOptions().with_learning_rate(0.05).with_momentum(0.9).with_weight_decay(0.01));
}

/// How a test uses an optimizer, on this rank.
template <class T>
struct Trainer {
  Model<T>& model;
  std::function<void(std::size_t samples)> begin;
  std::function<void(std::size_t parameter)> ready;
  std::function<bool()> step;
  std::function<bool()> flush;
  std::function<void()> zero;
  std::function<void()> join;
};

/// Trains with a sharded optimizer of stage 2: gradients lie elsewhere in every step.
template <class T, class Optimizer, class Body>
void train_in_stage_2(Model<T>& model, Optimizer& optimizer, const Body& body) {
  std::vector<bool> is_ready(model.list.size());
  const auto ready = [&](std::size_t i) {
    is_ready[i] = true;
    optimizer.gradient_ready(i, *model.list[i].gradient);
  };
  const auto step = [&] {
    for (std::size_t i = model.list.size(); i-- > 0;) {
      if (model.list[i].gradient && !is_ready[i]) ready(i);
    }
    is_ready.assign(model.list.size(), false);
    const bool has_stepped = optimizer.step();
    EXPECT_EQ(optimizer.is_free(0), has_stepped);
    return has_stepped;
  };
  const auto zero = [&] {
    optimizer.zero_grad();
    if (optimizer.is_free(0)) model.move_gradients();
  };
  body(Trainer<T>{model, [&](std::size_t n) { optimizer.begin_micro_step(n); }, ready, step,
                  [&] { return optimizer.flush(); }, zero, [&] { optimizer.join(); }});
}

/// Runs `body` with both optimizers on equal models, and compares the values afterwards.
template <class T, class Make, class Body>
void expect_equal(const World& world, const Make& make, const kolo::DistributedOptimizerOptions& options,
                  const Body& body, bool in_arena = false) {
  run_in(world, [&] {
    Model<T> replicated;
    const auto join = [] { kolo::join(); };
    {
      auto optimizer = make(Span<const Parameter>(replicated.list));
      kolo::DistributedOptimizer distributed(optimizer, replicated.list, options);
      body(Trainer<T>{replicated, [&](std::size_t n) { distributed.begin_micro_step(n); },
                      [&](std::size_t i) { distributed.gradient_ready(i); }, [&] { return distributed.step(); },
                      [&] { return distributed.flush(); }, [&] { distributed.zero_grad(); }, join});
    }
    for (const int stage : {0, 1, 2}) {
      Model<T> sharded;
      std::optional<kolo::GradientArena> arena;
      if (in_arena && stage < 2) arena.emplace(sharded.list);
      kolo::ShardedOptimizer distributed(
          sharded.list, make,
          kolo::ShardedOptimizerOptions().with_stage(stage).with_reduction(options).with_gather_late(in_arena));
      if (stage == 2) {
        train_in_stage_2(sharded, distributed, body);
      } else {
        body(Trainer<T>{sharded, [&](std::size_t n) { distributed.begin_micro_step(n); },
                        [&](std::size_t i) { distributed.gradient_ready(i); }, [&] { return distributed.step(); },
                        [&] { return distributed.flush(); }, [&] { distributed.zero_grad(); },
                        stage == 0 ? std::function<void()>(join) : std::function<void()>([&] { distributed.join(); })});
      }
      distributed.wait_parameters();
      // A rank that joined did not see the last steps of the others where all have the whole state.
      for (std::size_t t = 0; t < sharded.values.size(); ++t) {
        std::vector<T> wanted = replicated.values[t], got = sharded.values[t];
        kolo::broadcast("wanted", kolo::view(wanted.data(), wanted.size()), kolo::size() - 1);
        if (stage == 0) kolo::broadcast("got", kolo::view(got.data(), got.size()), kolo::size() - 1);
        ASSERT_EQ(got, wanted) << "tensor " << t << ", rank " << kolo::rank() << ", stage " << stage;
      }
      EXPECT_EQ(sharded.buffer, (std::vector<T>{1, 2, 3}));
    }
  });
}

template <class T>
void one_step(const Trainer<T>& trainer, int micro_step) {
  trainer.zero();
  trainer.model.backward(kolo::rank(), micro_step);
  if (micro_step % 2 == 0) {  // some are announced
    trainer.ready(3);
    trainer.ready(0);
  }
  trainer.step();
}

TYPED_TEST(Sharded, WeightsAreThoseOfTheReplicatedOne) {
  using T = typename TypeParam::Element;
  for (const World& world : kWorlds) {
    const auto train = [](const Trainer<T>& trainer) {
      for (int step = 0; step < 4; ++step) one_step(trainer, step);
    };
    expect_equal<T>(world, adamw, {}, train);
    expect_equal<T>(world, sgd, {}, train);
    expect_equal<T>(world, sgd, kolo::DistributedOptimizerOptions().with_op(kolo::ReduceOp::sum), train);
    expect_equal<T>(world, adamw, {}, train, true);
  }
}

TYPED_TEST(Sharded, AccumulatesAndFlushes) {
  using T = typename TypeParam::Element;
  for (const World& world : kWorlds) {
    for (const kolo::ReduceOp op : {kolo::ReduceOp::average, kolo::ReduceOp::sum}) {
      expect_equal<T>(world, adamw, kolo::DistributedOptimizerOptions().with_accumulation_steps(3).with_op(op),
                      [](const Trainer<T>& trainer) {
                        for (int micro_step = 0; micro_step < 8; ++micro_step) one_step(trainer, micro_step);
                        EXPECT_TRUE(trainer.flush());
                        EXPECT_FALSE(trainer.flush());
                        for (int micro_step = 0; micro_step < 3; ++micro_step) one_step(trainer, micro_step);
                      });
    }
  }
}

TYPED_TEST(Sharded, WeighsSamples) {
  using T = typename TypeParam::Element;
  for (const World& world : kWorlds) {
    expect_equal<T>(world, adamw, kolo::DistributedOptimizerOptions().with_accumulation_steps(2),
                    [](const Trainer<T>& trainer) {
                      for (int micro_step = 0; micro_step < 7; ++micro_step) {
                        trainer.begin(static_cast<std::size_t>((kolo::rank() + micro_step) % 3 * 5));
                        one_step(trainer, micro_step);
                      }
                      trainer.flush();
                    });
  }
}

TYPED_TEST(Sharded, GoesOnWhereRanksRunOutOfData) {
  using T = typename TypeParam::Element;
  for (const World& world : kWorlds) {
    for (const int accumulation : {1, 2}) {
      expect_equal<T>(world, adamw, kolo::DistributedOptimizerOptions().with_accumulation_steps(accumulation),
                      [&](const Trainer<T>& trainer) {
                        const int micro_steps = accumulation * (2 + kolo::rank());  // the last rank has most
                        for (int micro_step = 0; micro_step < micro_steps; ++micro_step) one_step(trainer, micro_step);
                        trainer.join();
                      });
    }
    expect_equal<T>(world, sgd, {}, [](const Trainer<T>& trainer) {
      for (int step = 0; step < 2 + kolo::rank(); ++step) {
        trainer.begin(static_cast<std::size_t>(step + 1 + kolo::rank()));
        one_step(trainer, step);
      }
      trainer.join();
    });
  }
}

// Leftover micro-steps, of which a rank without data has none.
TEST(ShardedOptimizer, FollowsAFlush) {
  run_in({3, 0}, [] {
    Model<float> model;
    const kolo::ShardedOptimizerOptions options =
        kolo::ShardedOptimizerOptions().with_reduction(kolo::DistributedOptimizerOptions().with_accumulation_steps(4));
    kolo::ShardedOptimizer optimizer(model.list, sgd, options);
    if (kolo::rank() > 0) {
      optimizer.zero_grad();
      for (int micro_step = 0; micro_step < 2; ++micro_step) {
        model.backward(0, 1);
        EXPECT_FALSE(optimizer.step());
      }
      EXPECT_TRUE(optimizer.flush());
      EXPECT_FALSE(optimizer.flush());
    }
    optimizer.join();
    Model<float> wanted;
    kolo::Sgd alone = sgd(wanted.list);
    wanted.backward(0, 1);
    wanted.backward(0, 1);
    for (std::vector<float>& gradient : wanted.gradients) {
      for (float& x : gradient) x = (x + x) / 2 * 0.5F;
    }
    alone.step();
    for (std::size_t t = 0; t < model.values.size(); ++t) EXPECT_EQ(model.values[t], wanted.values[t]);
  });
}

TEST(ShardedOptimizer, ClipsByTheNormOfAllGradients) {
  for (const World& world : kWorlds) {
    run_in(world, [] {
      for (const double limit : {0.5, 1e6}) {
        Model<double> sharded, wanted;
        kolo::ShardedOptimizer optimizer(sharded.list, sgd, kolo::ShardedOptimizerOptions().with_max_norm(limit));
        EXPECT_FALSE(optimizer.norm().has_value());
        kolo::Sgd alone = sgd(wanted.list);
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          sharded.backward(kolo::rank(), step);
          optimizer.step();

          alone.zero_grad();
          for (int rank = 0; rank < kolo::size(); ++rank) wanted.backward(rank, step);
          double squares = 0;
          for (std::vector<double>& gradient : wanted.gradients) {
            for (double& x : gradient) {
              x /= kolo::size();
              squares += x * x;
            }
          }
          const double norm = std::sqrt(squares);
          EXPECT_NEAR(optimizer.norm().value(), norm, 1e-9 * norm);
          const double factor = std::min(1.0, limit / (norm + 1e-6));
          for (std::vector<double>& gradient : wanted.gradients) {
            for (double& x : gradient) x *= factor;
          }
          alone.step();
          for (std::size_t t = 0; t < sharded.values.size(); ++t) {
            for (std::size_t i = 0; i < sharded.values[t].size(); ++i) {
              ASSERT_NEAR(sharded.values[t][i], wanted.values[t][i], 1e-9);
            }
          }
        }
      }
    });
  }
}

TEST(ShardedOptimizer, KeepsItsPartOfTheState) {
  run_in({4, 0}, [] {
    Model<float> model;
    kolo::ShardedOptimizer optimizer(model.list, adamw);
    std::int64_t mine = 0, all = 0;
    for (const kolo::NamedView& one : optimizer.optimizer().state()) {
      if (one.name.find("mean/") == 0) mine += one.view.elements();
    }
    for (const auto& gradient : model.gradients) all += static_cast<std::int64_t>(gradient.size());
    EXPECT_LE(std::abs(mine - all / 4), static_cast<std::int64_t>(model.gradients.size()));
    EXPECT_EQ(kolo::allreduce(mine, kolo::ReduceOp::sum), all);
    for (const Parameter& piece : optimizer.pieces()) EXPECT_GT(piece.value.elements(), 0);
  });
}

/// A bfloat16 is the upper half of a float32. Rounds towards zero.
void cast_bfloat16(const kolo::TensorView& from, const kolo::TensorView& to) {
  for (std::int64_t i = 0; i < from.elements(); ++i) {
    if (to.dtype() == kolo::DType::float32) {
      const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(from.data())[i]} << 16U;
      std::memcpy(static_cast<float*>(to.data()) + i, &bits, sizeof bits);
    } else {
      std::uint32_t bits = 0;
      std::memcpy(&bits, static_cast<const float*>(from.data()) + i, sizeof bits);
      static_cast<std::uint16_t*>(to.data())[i] = static_cast<std::uint16_t>(bits >> 16U);
    }
  }
}

// Steps that 16 bits are too coarse for add up in the copies; clipped and scaled as any; in all stages, and saved.
TEST(ShardedOptimizer, StepsCopiesOfValuesThatHave16Bits) {
  for (const int stage : {0, 1, 2}) {
    run_in({3, 0}, [&] {
      std::vector<kolo::BFloat16> values(5, {0x3f80}), gradients(5);  // 1.0
      const kolo::TensorView view = kolo::view(gradients);
      const std::vector<Parameter> list{{"w", kolo::view(values), view}};
      const kolo::ShardedOptimizerOptions options =
          kolo::ShardedOptimizerOptions().with_stage(stage).with_cast(cast_bfloat16).with_max_norm(100);
      const auto make = [](Span<const Parameter> mine) {
        for (const Parameter& piece : mine) EXPECT_EQ(piece.value.dtype(), kolo::DType::float32);
        return kolo::Sgd(mine, kolo::SgdOptions().with_learning_rate(1.0 / 4096));
      };
      kolo::LossScaler scaler(kolo::LossScalerOptions().with_initial_scale_power(1).with_loss_scale_window(1000));
      kolo::ShardedOptimizer optimizer(list, make, options);
      for (int step = 0; step < 16; ++step) {
        optimizer.zero_grad();
        const bool overflows = step == 3 && kolo::rank() == 1;
        for (kolo::BFloat16& x : gradients) x = {static_cast<std::uint16_t>(overflows ? 0x7f80 : 0x4000)};  // 2.0
        if (stage == 2) optimizer.gradient_ready(0, view);
        EXPECT_EQ(optimizer.step(scaler), step != 3);
      }
      // 2 / scale is 1, and from the overflow on 2: 3 steps of 1 and 12 of 2 fourthousandths.
      for (const kolo::ConstNamedView& one : optimizer.state()) {
        if (one.name != "master/w") continue;
        for (std::int64_t i = 0; i < one.view.elements(); ++i) {
          EXPECT_EQ(static_cast<const float*>(one.view.data())[i], 1 - 27.0F / 4096);
        }
      }
      for (const kolo::BFloat16& x : values) EXPECT_EQ(x.bits, 0x3f7e);  // 0.9934..., cut off
      EXPECT_NEAR(optimizer.norm().value(), 2 * std::sqrt(5.0), 1e-6);
    });
  }
}

TEST(ShardedOptimizer, TellsWhereAGradientMayNotBePlaced) {
  run_in({2, 0}, [] {
    Model<float> model;
    kolo::ShardedOptimizer optimizer(model.list, sgd, kolo::ShardedOptimizerOptions().with_stage(2));
    std::vector<float> few(3);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { optimizer.gradient_ready(0, kolo::view(few)); }),
              "DistributedOptimizer: place(0): \"w0\" is float32 [7, 13] on the CPU; the memory is float32 [3] on cpu");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { optimizer.gradient_ready(2, kolo::view(few)); }),
              "DistributedOptimizer: place(2): there is no gradient of this number whose memory may change");
    optimizer.gradient_ready(0, *model.list[0].gradient);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { optimizer.gradient_ready(0, *model.list[0].gradient); }),
              "DistributedOptimizer: place(0): \"w0\" is being reduced, or was; the next step is the time for it");
    optimizer.step();
  });
}

TEST(ShardedOptimizer, GathersLateByParameter) {
  run_in({3, 0}, [] {
    Model<float> now, late;
    kolo::ShardedOptimizer waits(now.list, adamw);
    kolo::ShardedOptimizerOptions options;
    options.reduction.name = "late";
    options.gather_late = true;
    kolo::ShardedOptimizer returns(late.list, adamw, options);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < late.list.size(); ++i) returns.wait_parameter(i);  // also before the first step
      for (std::size_t t = 0; t < late.values.size(); ++t) EXPECT_EQ(late.values[t], now.values[t]);
      waits.zero_grad();
      returns.zero_grad();
      now.backward(kolo::rank(), step);
      late.backward(kolo::rank(), step);
      waits.step();
      returns.step();
    }
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { returns.wait_parameter(99); }),
              "ShardedOptimizer: wait_parameter(99): there is no such parameter; there are 8, numbered from 0");
  });
}

TEST(ShardedOptimizer, ComparesReplicasInTheStepThatFollows) {
  const auto train = [] {
    for (int stage = 0; stage < 3; ++stage) {
      Model<float> model;
      model.buffer[0] = static_cast<float>(kolo::rank());  // buffers may differ
      kolo::ShardedOptimizer optimizer(model.list, adamw,
                                       kolo::ShardedOptimizerOptions().with_stage(stage).with_gather_late(stage == 1));
      for (int step = 1; step < 6; ++step) EXPECT_TRUE(optimizer.step());
      EXPECT_TRUE(optimizer.step());
      optimizer.wait_parameters();
      if (kolo::rank() == 1) {
        model.values[2][0] += 1;  // the piece of rank 0
        model.values[5][1] += 1;  // its own
      }
      EXPECT_EQ(sentence_of(ErrorCode::mismatch, [&] { optimizer.step(); }),
                "parameter \"w2\" is not the same on all ranks after step 6 (KOLO_CHECK_REPLICAS): rank 1 holds other "
                "values than ranks 0 and 2; 1 more parameter differs")
          << "stage " << stage;
    }
  };
  run_in(3, {{"KOLO_CHECK_REPLICAS", "3"}}, train);
}

TEST(ShardedOptimizer, RanksThatBeginUnequalAreToldBeforeTheFirstStep) {
  run_in({3, 0}, [] {
    for (int stage = 0; stage < 3; ++stage) {
      Model<float> model;
      if (kolo::rank() == 2) model.values[5][1] += 1;
      kolo::ShardedOptimizer optimizer(model.list, adamw, kolo::ShardedOptimizerOptions().with_stage(stage));
      const auto before = model.values;
      EXPECT_EQ(
          sentence_of(ErrorCode::mismatch, [&] { optimizer.step(); }),
          "parameter \"w5\" is not the same on all ranks before the first step: rank 2 holds other values than ranks "
          "0 and 1. Give all ranks the values of one (broadcast_parameters), or leave out what is to differ "
          "(KOLO_CHECK_REPLICAS=first,-PATTERN)")
          << "stage " << stage;
      EXPECT_EQ(model.values, before);
      kolo::broadcast_parameters(model.list);
      EXPECT_TRUE(optimizer.step());
      optimizer.wait_parameters();
    }
  });
}

TEST(ShardedOptimizer, ClippingSkipsAStepWhoseNormIsNoNumberOnAllRanks) {
  run_in({2, 0}, [] {
    for (int stage = 0; stage < 2; ++stage) {
      Model<float> model;
      kolo::ShardedOptimizer optimizer(model.list, adamw,
                                       kolo::ShardedOptimizerOptions().with_stage(stage).with_max_norm(1.0));
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        model.backward(kolo::rank(), 0);
        if (kolo::rank() == 1) model.gradients[2][0] = bad;
        const auto before = model.values;
        EXPECT_FALSE(optimizer.step());
        EXPECT_FALSE(std::isfinite(*optimizer.norm()));
        EXPECT_EQ(model.values, before);
        optimizer.zero_grad();
      }
      model.backward(kolo::rank(), 0);
      EXPECT_TRUE(optimizer.step());
      EXPECT_TRUE(std::isfinite(*optimizer.norm()));
    }
  });
}

TEST(ShardedOptimizer, WorksInAGroup) {
  run_in({4, 0}, [] {
    const kolo::Group half = kolo::world().split(kolo::rank() % 2);
    Model<float> model;
    kolo::ShardedOptimizer optimizer(half, Span<const Parameter>(model.list), sgd);
    model.backward(kolo::rank(), 1);
    optimizer.step();
    Model<float> wanted;
    kolo::Sgd alone = sgd(wanted.list);
    for (const int rank : {kolo::rank() % 2, kolo::rank() % 2 + 2}) wanted.backward(rank, 1);
    for (std::vector<float>& gradient : wanted.gradients) {
      for (float& x : gradient) x /= 2;
    }
    alone.step();
    for (std::size_t t = 0; t < model.values.size(); ++t) EXPECT_EQ(model.values[t], wanted.values[t]);
  });
}

TEST(ShardedOptimizer, RefusesWhatItCannotDo) {
  run_in({1, 0}, [] {
    Model<float> model;
    const auto made_with = [&](const kolo::ShardedOptimizerOptions& options) {
      return [&model, options] { kolo::ShardedOptimizer optimizer(model.list, sgd, options); };
    };
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made_with(kolo::ShardedOptimizerOptions().with_max_norm(0))),
              "ShardedOptimizer: max_norm is 0.000000; it must be more than 0");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, made_with(kolo::ShardedOptimizerOptions().with_stage(3))),
              "ShardedOptimizer: stage is 3; it must be 0, 1 or 2");
    kolo::ShardedOptimizer optimizer(model.list, sgd);
    optimizer.gradient_ready(0);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { optimizer.join(); }),
              "DistributedOptimizer: follow_step() is for a rank whose last step has ended, with gradients in pieces");
    optimizer.step();
    std::vector<std::int32_t> whole(4), gradient(4);
    const std::vector<Parameter> integers{{"n", kolo::view(whole), kolo::view(gradient)}};
    kolo::ShardedOptimizerOptions clipped = kolo::ShardedOptimizerOptions().with_max_norm(1);
    clipped.reduction.op = kolo::ReduceOp::sum;
    EXPECT_EQ(sentence_of(ErrorCode::unsupported,
                          [&] { kolo::detail::ParameterShards shards(kolo::world(), integers, clipped); }),
              "ShardedOptimizer: max_norm: the gradient of \"n\" is int32; only float32 and float64 are supported");
  });
}

}  // namespace
