// SPDX-License-Identifier: Apache-2.0
//
// Gradients in blocks of 8 bits: what rounding loses in one step comes in the next, so that the sum of many steps is
// that of the gradients; ranks agree bit for bit; a quarter of the bytes travels; and a checkpoint keeps what was lost.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <unistd.h>

#include <kolo/kolo.hpp>
#include <kolo/training.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::Compression;
using kolo::ErrorCode;
using kolo::Parameter;
using kolo::Span;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

constexpr std::size_t kLong = 1000;  // elements: blocks that are whole, and one that is not

template <class T>
struct Model {
  Model() : values{std::vector<T>(kLong), std::vector<T>(3), std::vector<T>(1)}, gradients(values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      list.push_back({"w" + std::to_string(i), kolo::view(values[i]), kolo::view(gradients[i])});
    }
    list.insert(list.begin() + 1, {"mean", kolo::view(buffer), std::nullopt});
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  static double number(int rank, int step, std::size_t i) {
    return std::sin(1.0 + rank * 3.7 + step * 11.1 + static_cast<double>(i) * 0.37) * (i % 300 == 7 ? 8 : 1);
  }
  void backward(int rank, int step) {
    for (std::vector<T>& gradient : gradients) {
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += static_cast<T>(number(rank, step, i));
    }
  }

  std::vector<std::vector<T>> values, gradients;
  std::vector<T> buffer = {1, 2};
  std::vector<Parameter> list;
};

/// What steps of `Sgd` with learning rate 1 have subtracted: the sum of the mean gradients.
double exact(int ranks, int steps, std::size_t i) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int step = 0; step < steps; ++step) sum += Model<double>::number(rank, step, i);
  }
  return sum / ranks;
}

kolo::Sgd sgd(Span<const Parameter> of) { return kolo::Sgd(of, kolo::SgdOptions().with_learning_rate(1)); }

kolo::DistributedOptimizerOptions compressed() {
  return kolo::DistributedOptimizerOptions().with_compression(Compression::int8_blocks);
}

/// Of a value after many steps: no more than a step's rounding is missing. The largest gradients are 8, so a step of a
/// sum of `ranks` is 8 / 127 of each.
constexpr double kRounding = 2 * 8.0 / 127;

template <class T>
void expect_sum(const Model<T>& model, int steps, double tolerance = kRounding) {
  for (const std::vector<T>& values : model.values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], -exact(kolo::size(), steps, i), tolerance) << i << ", rank " << kolo::rank();
    }
  }
}

template <class T>
void expect_all_equal(const Model<T>& model) {
  std::vector<T> all;
  for (const std::vector<T>& values : model.values) all.insert(all.end(), values.begin(), values.end());
  std::vector<T> first = all;
  kolo::broadcast("of the first", kolo::view(first), 0);
  EXPECT_EQ(first, all);
}

template <class Body>
void run(int ranks, int per_node, Body&& body) {
  run_in({ranks, per_node}, std::forward<Body>(body));
}

template <class T>
void train_replicated(int steps) {
  Model<T> model;
  kolo::Sgd inner = sgd(model.list);
  kolo::DistributedOptimizer optimizer(inner, model.list, compressed());
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    model.backward(kolo::rank(), step);
    if (step % 2 == 0) optimizer.gradient_ready(0);
    optimizer.step();
    expect_all_equal(model);
  }
  expect_sum(model, steps);
}

TEST(Compression, LosesNothingInTheLongRun) {
  for (const auto& [ranks, per_node] : {std::pair{1, 0}, {2, 0}, {3, 0}, {4, 2}, {3, 1}}) {
    run(ranks, per_node, [] {
      train_replicated<float>(20);
      train_replicated<double>(20);
    });
  }
}

TEST(Compression, WorksInAllStagesAndWithAccumulation) {
  for (const int stage : {0, 1, 2}) {
    run(3, 0, [&] {
      Model<float> model;
      kolo::ShardedOptimizer optimizer(
          model.list, sgd,
          kolo::ShardedOptimizerOptions().with_stage(stage).with_reduction(compressed().with_accumulation_steps(2)));
      for (int step = 0; step < 20; ++step) {
        if (step % 2 == 0) optimizer.zero_grad();
        if (step % 2 == 0 && stage == 2) {
          for (std::vector<float>& gradient : model.gradients) gradient.assign(gradient.size(), 0);
        }
        model.backward(kolo::rank(), step);
        for (std::size_t i = 0; stage == 2 && i < model.list.size(); ++i) {
          if (model.list[i].gradient) optimizer.gradient_ready(i, *model.list[i].gradient);
        }
        EXPECT_EQ(optimizer.step(), step % 2 == 1);
      }
      for (std::vector<float>& values : model.values) {
        for (float& x : values) x *= 2;  // means of two micro-steps
      }
      expect_sum(model, 20, 2 * kRounding);
      expect_all_equal(model);
    });
  }
}

TEST(Compression, OfASumAndWithRanksThatFollow) {
  run(3, 0, [] {
    Model<float> model;
    kolo::ShardedOptimizer optimizer(
        model.list, sgd, kolo::ShardedOptimizerOptions().with_reduction(compressed().with_op(kolo::ReduceOp::sum)));
    const int own_steps = kolo::rank() == 0 ? 10 : 5;
    for (int step = 0; step < own_steps; ++step) {
      optimizer.zero_grad();
      model.backward(kolo::rank(), step);
      optimizer.step();
    }
    optimizer.join();
    for (std::size_t i = 0; i < kLong; ++i) {
      double wanted = 0;
      for (int rank = 0; rank < 3; ++rank) wanted -= exact(3, 5, i) * (rank == 0 ? 3 : 0);
      for (int step = 5; step < 10; ++step) wanted -= Model<double>::number(0, step, i);
      ASSERT_NEAR(model.values[0][i], wanted, 3 * kRounding) << i;
    }
  });
}

TEST(Compression, SendsAQuarterOfTheBytes) {
  run(4, 0, [] {
    std::vector<float> value(100000), gradient(value);
    const std::vector<Parameter> list{{"w", kolo::view(value), kolo::view(gradient)}};
    const auto bytes_of_a_step = [&](const kolo::DistributedOptimizerOptions& options) {
      kolo::Sgd inner = sgd(list);
      kolo::DistributedOptimizer optimizer(inner, list, options);
      optimizer.step();
      kolo::barrier();
      const std::uint64_t before = kolo::metrics().bytes;
      optimizer.step();
      return static_cast<double>(kolo::metrics().bytes - before);
    };
    const double plain = bytes_of_a_step({}), in_blocks = bytes_of_a_step(compressed());
    // A byte and a 64th of an element is exchanged, and a quarter of that gathered; an all-reduce's 4 bytes are both.
    EXPECT_NEAR(plain, 4e5, 100);
    EXPECT_NEAR(in_blocks, 1e5 * (1 + 1.0 / 64) * 1.25, 200);
  });
}

TEST(Compression, TellsOfNumbersThatAreNotFiniteAndGoesOn) {
  run(2, 0, [] {
    Model<float> model;
    kolo::Sgd inner = sgd(model.list);
    kolo::DistributedOptimizer optimizer(inner, model.list, compressed());
    kolo::LossScaler scaler(kolo::LossScalerOptions().with_loss_scale(1));
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      model.backward(kolo::rank(), step);
      if (step == 2 && kolo::rank() == 1) model.gradients[0][500] = std::numeric_limits<float>::infinity();
      EXPECT_EQ(optimizer.step(scaler), step != 2);
    }
    for (std::size_t i = 0; i < kLong; ++i) {
      const double wanted = -exact(2, 6, i) + exact(2, 3, i) - exact(2, 2, i);
      ASSERT_NEAR(model.values[0][i], wanted, 2 * kRounding) << i;
    }
  });
}

/// Trains on from a checkpoint, and saves the next.
void go_on(int ranks, int stage, int first, const std::string& from, const std::string& to) {
  run(ranks, 0, [&] {
    Model<float> model;
    const auto train = [&](auto& optimizer) {
      if (!from.empty()) kolo::load_checkpoint(from, model.list, optimizer);
      for (int step = first; step < first + 3; ++step) {
        optimizer.zero_grad();
        model.backward(0, step);
        optimizer.step();
      }
      kolo::save_checkpoint(to, model.list, optimizer);
    };
    if (stage < 0) {
      kolo::Sgd inner = sgd(model.list);
      kolo::DistributedOptimizer optimizer(inner, model.list, compressed());
      train(optimizer);
    } else {
      kolo::ShardedOptimizer optimizer(model.list, sgd,
                                       kolo::ShardedOptimizerOptions().with_stage(stage).with_reduction(compressed()));
      train(optimizer);
    }
    for (std::size_t i = 0; i < kLong; ++i) {
      double wanted = 0;
      for (int step = 0; step < first + 3; ++step) wanted -= Model<double>::number(0, step, i);
      ASSERT_NEAR(model.values[0][i], wanted, kRounding) << i;
    }
  });
}

// If a checkpoint did not keep what was lost, each would cost up to a rounding; by the fourth, twice of what is
// allowed.
TEST(Compression, CheckpointsKeepWhatWasLost) {
  const std::string base = "compression_test_" + std::to_string(::getpid()) + "_";
  int first = 0;
  std::string from;
  for (const auto& [ranks, stage] : {std::pair{4, -1}, {3, 1}, {1, 0}, {4, 0}, {2, -1}, {3, 1}}) {
    const std::string to = base + std::to_string(first);
    go_on(ranks, stage, first, from, to);
    first += 3;
    from = to;
  }
  for (int at = 0; at < first; at += 3) std::filesystem::remove_all(base + std::to_string(at));
}

TEST(Compression, RefusesWhatItCannotDo) {
  run(2, 0, [] {
    Model<float> model;
    kolo::Sgd inner = sgd(model.list);
    const auto made_with = [&](const std::vector<Parameter>& list, const kolo::DistributedOptimizerOptions& options) {
      return [&list, options] { kolo::detail::GradientReducer reducer(kolo::world(), list, options); };
    };
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                          made_with(model.list, compressed().with_send_gradients_as(kolo::DType::float16))),
              "DistributedOptimizer: compression and send_gradients_as are both set; one of them can be");
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                          made_with(model.list, compressed().with_compression(static_cast<Compression>(7)))),
              "DistributedOptimizer: compression is number 7, which does not exist; the last one is 1");
    std::vector<kolo::BFloat16> value(4), gradient(4);
    const std::vector<Parameter> narrow{{"h", kolo::view(value), kolo::view(gradient)}};
    EXPECT_EQ(sentence_of(ErrorCode::unsupported, made_with(narrow, compressed())),
              "DistributedOptimizer: compression: the gradient of \"h\" is bfloat16; only float32 and float64 are "
              "supported");
    EXPECT_EQ(
        sentence_of(ErrorCode::mismatch,
                    made_with(model.list, kolo::rank() == 0 ? compressed() : kolo::DistributedOptimizerOptions())),
        "DistributedOptimizer(gradients): ranks disagree: rank 0 has \"compression int8_blocks\"; rank 1 has \"w0 "
        "float32 [1000]\"");
    kolo::detail::GradientReducer reducer(kolo::world(), model.list, compressed());
    reducer.gradient_ready(0);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { static_cast<void>(reducer.state()); }),
              "DistributedOptimizer: state() in the middle of a step; after step() is the time for it");
    EXPECT_TRUE(reducer.finish_micro_step());
  });
}

}  // namespace
