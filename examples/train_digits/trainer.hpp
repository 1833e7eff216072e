// SPDX-License-Identifier: Apache-2.0
//
// The training job, as every rank runs it. `train()` is the whole program; what is Kolo's in it stands out by its
// `kolo::`. Everything depends on the rank, the number of ranks and the seed alone, so that ranks that are processes
// and ranks that are threads end with the same weights, bit for bit (docs/writing-a-trainer.md says where that ends).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "digits.hpp"
#include "network.hpp"

namespace train_digits {

struct TrainOptions {
  int epochs = 30;                      // in total: a run that goes on from a checkpoint does what is left
  std::size_t batch_size = 32;          // over all ranks; rounded up to a multiple of them
  std::optional<double> learning_rate;  // empty: the optimizer's usual one, or the checkpoint's
  std::string optimizer = "sgd";        // or "adamw"
  std::uint64_t seed = 0;               // of initial weights and of the order of images
  std::size_t train_rows = 1437;        // the rest is held out
  std::string save, load;               // checkpoints (folders); empty: none
  std::optional<kolo::DType> send_gradients_as;
  kolo::Compression compression = kolo::Compression::none;
};

struct TrainResult {
  double accuracy = 0;             // on the held-out images, 0 to 1
  std::vector<double> losses;      // by epoch of this run: the mean over all images that ranks trained on
  double seconds = 0;              // in these epochs
  double images_per_second = 0;    // over all ranks
  std::uint64_t weights_hash = 0;  // FNV-1a of all weights, of this rank
  bool all_ranks_equal = false;    // whether every rank has that hash
  std::size_t batch_size = 0;      // as used
  int ranks = 0;
};

/// Called on every rank after each epoch.
using OnEpoch = std::function<void(int epoch, double loss)>;

/// Runs `body` on rank 0. When it throws there, every rank throws the same: none is left waiting.
template <class Body>
void on_rank_0(const Body& body) {
  std::string fault;
  if (kolo::rank() == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      fault = error.what();
    }
  }
  fault = kolo::broadcast_object(fault);
  if (!fault.empty()) {
    throw std::runtime_error(fault);
  }
}

/// The trainer's own numbers, which a checkpoint has, too.
struct Position {
  std::int64_t epoch = 0;
  std::uint64_t seed = 0;
  kolo::CheckpointOptions options() {
    return kolo::CheckpointOptions().with_value("epoch", epoch).with_value("seed", seed);
  }
};

/// Reads a checkpoint, on every rank. Returns its epoch.
template <class Optimizer>
std::int64_t load(const TrainOptions& options, const std::vector<kolo::Parameter>& parameters, Optimizer& optimizer) {
  Position position;
  kolo::load_checkpoint(options.load, parameters, optimizer, position.options());
  if (position.seed != options.seed) {
    throw std::runtime_error(options.load + ": was trained with --seed " + std::to_string(position.seed) +
                             "; go on with the same, not " + std::to_string(options.seed));
  }
  return position.epoch;
}

/// The share of the held-out images that the network gets right; every rank looks at its part of them.
template <class T>
double accuracy(const Digits& digits, const Rows& held_out, Network<T>& net) {
  Rows mine;
  for (auto i = static_cast<std::size_t>(kolo::rank()); i < held_out.size();
       i += static_cast<std::size_t>(kolo::size())) {
    mine.push_back(held_out[i]);
  }
  const std::int64_t correct = kolo::allreduce(net.count_correct(gather<T>(digits, mine)), kolo::ReduceOp::sum);
  return static_cast<double>(correct) / static_cast<double>(held_out.size());
}

/// FNV-1a, 64 bits, of all weights.
inline std::uint64_t hash_of(const std::vector<kolo::Parameter>& parameters) {
  std::uint64_t hash = 14695981039346656037U;
  for (const kolo::Parameter& parameter : parameters) {
    const auto* const bytes = static_cast<const unsigned char*>(parameter.value.data());
    for (std::int64_t i = 0; i < parameter.value.bytes(); ++i) {
      hash = (hash ^ bytes[i]) * 1099511628211U;
    }
  }
  return hash;
}

/// One epoch over this rank's shard. Returns the mean loss over all ranks' images.
template <class T, class Optimizer>
double run_epoch(const std::vector<Batch<T>>& shard, Network<T>& net,
                 kolo::DistributedOptimizer<Optimizer>& optimizer) {
  double loss = 0;
  double images = 0;
  for (const Batch<T>& batch : shard) {
    optimizer.zero_grad();
    loss += net.forward_backward(batch, [&](std::size_t i) { optimizer.gradient_ready(i); });  // overlaps
    optimizer.step();  // waits for the reductions, then steps
    images += static_cast<double>(batch.size());
  }
  return kolo::allreduce(loss, kolo::ReduceOp::sum) / kolo::allreduce(images, kolo::ReduceOp::sum);
}

/// Trains with an optimizer of this rank's own.
template <class T, class Optimizer>
TrainResult train_with(Optimizer& local, Network<T>& net, const Digits& digits, const TrainOptions& options,
                       const OnEpoch& on_epoch) {
  const std::vector<kolo::Parameter> parameters = net.parameters();
  const std::int64_t first_epoch = options.load.empty() ? 0 : load(options, parameters, local);
  if (options.learning_rate) {
    local.set_learning_rate(*options.learning_rate);
  }
  kolo::broadcast_parameters(parameters);  // every rank started differently, and now the same

  kolo::DistributedOptimizerOptions reduction;
  reduction.send_gradients_as = options.send_gradients_as;
  reduction.compression = options.compression;
  kolo::DistributedOptimizer optimizer(local, parameters, reduction);
  const Split rows = split(digits.size(), options.train_rows);
  const kolo::DistributedSampler sampler(rows.training.size(),
                                         kolo::DistributedSamplerOptions{}.with_seed(options.seed));
  const auto ranks = static_cast<std::size_t>(kolo::size());
  const std::size_t per_rank = (options.batch_size + ranks - 1) / ranks;

  TrainResult result;
  std::int64_t epoch = first_epoch;
  const auto start = std::chrono::steady_clock::now();
  for (; epoch < options.epochs; ++epoch) {
    const Rows shard = sampler.epoch(static_cast<std::uint64_t>(epoch));
    result.losses.push_back(run_epoch(batches<T>(digits, rows.training, shard, per_rank), net, optimizer));
    on_epoch(static_cast<int>(epoch) + 1, result.losses.back());
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!options.save.empty()) {
    Position position{epoch, options.seed};
    kolo::save_checkpoint(options.save, parameters, local, position.options());
  }

  const auto images = static_cast<double>(sampler.size() * ranks * result.losses.size());
  result.images_per_second = images > 0 ? images / result.seconds : 0;
  result.accuracy = accuracy(digits, rows.held_out, net);
  result.weights_hash = hash_of(parameters);
  result.all_ranks_equal = true;
  for (const std::uint64_t hash : kolo::allgather_object(result.weights_hash)) {
    result.all_ranks_equal = result.all_ranks_equal && hash == result.weights_hash;
  }
  result.batch_size = per_rank * ranks;
  result.ranks = kolo::size();
  return result;
}

/// The whole job in float or double. Collective: every rank gives the same digits and options.
template <class T>
TrainResult train(const Digits& digits, const TrainOptions& options, const OnEpoch& on_epoch) {
  // Different weights on every rank, to show that the broadcast makes them the same.
  Network<T> net(options.seed * 1000003 + static_cast<std::uint64_t>(kolo::rank()));
  if (options.optimizer == "adamw") {
    kolo::AdamW adamw(net.parameters(), {/*learning_rate=*/0.005});
    return train_with(adamw, net, digits, options, on_epoch);
  }
  kolo::Sgd sgd(net.parameters(), {/*learning_rate=*/0.05, /*momentum=*/0.9});
  return train_with(sgd, net, digits, options, on_epoch);
}

}  // namespace train_digits
