// SPDX-License-Identifier: Apache-2.0
//
// The example that trains in tensor, data and pipeline groups at once, on ranks as threads: its losses and parameters
// are those of one rank.
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/kolo.hpp>

#include "examples/hybrid_trainer/trainer.hpp"
#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::testing::run_in;

using hybrid_trainer::Config;

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::map<int, std::vector<double>>> parameters;  // each by its tensor rank
};

Config degrees(int tensor, int data, int pipeline) {
  Config config;
  config.tensor = tensor;
  config.data = data;
  config.pipeline = pipeline;
  config.steps = kolo::testing::unless_sanitized(10, 3);
  return config;
}

Trained train(const Config& config, int per_node = 0) {
  Trained result;
  std::mutex mutex;
  const auto body = [&] {
    hybrid_trainer::Trainer trainer(kolo::world(), config);
    std::vector<double> losses;
    for (int i = 0; i < config.steps; ++i) losses.push_back(trainer.step(i));
    const std::lock_guard<std::mutex> lock(mutex);
    if (result.losses.empty()) result.losses = losses;
    EXPECT_EQ(losses, result.losses) << "every rank knows them";
    for (const kolo::Parameter& parameter : trainer.parameters()) {
      const auto* values = static_cast<const double*>(parameter.value.data());
      std::vector<double>& known = result.parameters[parameter.name][kolo::rank() % config.tensor];
      const std::vector<double> own(values, values + parameter.value.elements());
      if (known.empty()) known = own;
      EXPECT_EQ(own, known) << parameter.name << " is the same on all ranks of a data group";
    }
  };
  run_in({config.tensor * config.data * config.pipeline, per_node}, body);
  return result;
}

/// Of all numbers, relative to the size of all.
double distance(const std::vector<double>& one, const std::vector<double>& other) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    apart = std::hypot(apart, one[i] - other[i]);
    size = std::hypot(size, other[i]);
  }
  return apart / size;
}

void expect_what_one_rank_has(const Config& config, int per_node) {
  SCOPED_TRACE(std::to_string(config.tensor) + " x " + std::to_string(config.data) + " x " +
               std::to_string(config.pipeline) + " ranks, " + std::to_string(per_node) + " a node");
  Config alone = config;
  alone.tensor = alone.data = alone.pipeline = alone.micro_batches = 1;
  const Trained expected = train(alone), got = train(config, per_node);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_LE(std::abs(got.losses[i] / expected.losses[i] - 1), 1e-12) << "step " << i;
  }
  ASSERT_EQ(got.parameters.size(), 3U * static_cast<std::size_t>(config.blocks));
  for (const auto& [name, parts] : got.parameters) {
    const std::vector<double>& whole = expected.parameters.at(name).at(0);
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(config.tensor));
    std::vector<double> together;
    for (const auto& [rank, part] : parts) {
      if (part.size() == whole.size()) {
        EXPECT_LE(distance(part, whole), 1e-12) << name << " of tensor rank " << rank;
      }
      together.insert(together.end(), part.begin(), part.end());
    }
    if (together.size() == whole.size()) {
      EXPECT_LE(distance(together, whole), 1e-12) << name;
    } else {
      EXPECT_EQ(together.size(), whole.size() * parts.size()) << name;
    }
  }
}

TEST(Hybrid, EachKindOfParallelismAlone) {
  for (const int per_node : {0, 3}) {
    expect_what_one_rank_has(degrees(4, 1, 1), per_node);
    expect_what_one_rank_has(degrees(1, 4, 1), per_node);
    expect_what_one_rank_has(degrees(1, 1, 4), per_node);
  }
}

TEST(Hybrid, TwoKindsTogether) {
  expect_what_one_rank_has(degrees(2, 1, 2), 0);
  expect_what_one_rank_has(degrees(1, 2, 2), 1);
  expect_what_one_rank_has(degrees(2, 2, 1), 3);
}

TEST(Hybrid, AllThreeTogether) {
  for (const int per_node : {0, 1, 2, 3}) expect_what_one_rank_has(degrees(2, 2, 2), per_node);
}

TEST(Hybrid, FewerMicroBatchesThanStagesAndManyMore) {
  Config config = degrees(1, 1, 4);
  for (const int micro_batches : {1, 2, 16}) {
    config.micro_batches = micro_batches;
    expect_what_one_rank_has(config, 0);
  }
}

// 40 rows of 64 numbers: 20 KiB, a send that waits for its receive.
TEST(Hybrid, MessagesThatWaitForTheirReceive) {
  Config config = degrees(1, 2, 4);
  config.width = 64;
  config.batch_size = 40 * 2 * 4;
  config.steps = 2;
  for (const int per_node : {0, 3}) expect_what_one_rank_has(config, per_node);
}

TEST(Hybrid, Learns) {
  Config config = degrees(2, 2, 2);
  config.steps = kolo::testing::unless_sanitized(100, 20);
  config.batch_size = 128;
  const std::vector<double> losses = train(config).losses;
  EXPECT_LT(losses.back(), 0.9 * losses.front());
}

}  // namespace
