// SPDX-License-Identifier: Apache-2.0
//
// Tensor, data and pipeline parallel training at once. Each rank is in three groups:
//   tensor    the same blocks and rows: each rank has a part of every weight, and what they compute is summed
//   data      the same parts of the same blocks, other rows: gradients are averaged, and each rank keeps and steps its
//             share of the optimizer's state
//   pipeline  the same rows, other blocks: outputs go to the next rank, derivatives to the one before
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

namespace hybrid_trainer {

struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> values;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(r * c) {}
  double& operator()(std::int64_t r, std::int64_t c) { return values[r * columns + c]; }
  double operator()(std::int64_t r, std::int64_t c) const { return values[r * columns + c]; }
};

inline Matrix transposed(const Matrix& a) {
  Matrix out(a.columns, a.rows);
  for (std::int64_t r = 0; r < a.rows; ++r)
    for (std::int64_t c = 0; c < a.columns; ++c) out(c, r) = a(r, c);
  return out;
}

inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out(a.rows, b.columns);
  for (std::int64_t r = 0; r < a.rows; ++r)
    for (std::int64_t i = 0; i < a.columns; ++i)
      for (std::int64_t c = 0; c < b.columns; ++c) out(r, c) += a(r, i) * b(i, c);
  return out;
}

/// Adds `b` to `a`. If `b` is one row, every row of `a` gets it; if `a` is one row, it gets every row of `b`.
inline void add(Matrix& a, const Matrix& b) {
  for (std::int64_t r = 0; r < std::max(a.rows, b.rows); ++r)
    for (std::int64_t c = 0; c < a.columns; ++c) a(a.rows == 1 ? 0 : r, c) += b(b.rows == 1 ? 0 : r, c);
}

/// Rows of an endless table of random numbers in [-limit, limit). Each rank takes its part of weights and data from
/// such tables, so that all ranks together have what one rank alone would have.
inline Matrix random_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows, std::int64_t width, double limit) {
  std::mt19937_64 generator(seed);
  generator.discard(first * width);
  Matrix out(rows, width);
  for (double& value : out.values) value = limit * (std::ldexp(static_cast<double>(generator() >> 11U), -52) - 1);
  return out;
}

struct Weight {
  std::string name;
  Matrix value, gradient;
  Weight(std::string n, Matrix v) : name(std::move(n)), value(std::move(v)), gradient(value.rows, value.columns) {}
};

/// A residual block, in + down(tanh(up(in))) + bias, whose hidden units the ranks of a tensor group share. A rank
/// computes its own from the whole input (`up` is column-parallel), and what they add to the output (`down` is
/// row-parallel): one all-reduce forward and one backward (Shoeybi et al., "Megatron-LM", 2019).
struct Block {
  kolo::Group tensor;
  std::int64_t own;  // hidden units of this rank: rows of both weights
  Weight up, down, bias;

  Block(const kolo::Group& group, const std::string& name, std::uint64_t seed, std::int64_t width, std::int64_t hidden)
      : tensor(group), own(hidden / kolo::size(group)),
        up(name + ".up", random_rows(seed, own * kolo::rank(group), own, width, 1 / std::sqrt(width))),
        down(name + ".down", random_rows(seed + 1, own * kolo::rank(group), own, width, 1 / std::sqrt(width))),
        bias(name + ".bias", Matrix(1, width)) {}
  /// `kept` ends with the input. Appends the hidden units and the output.
  void forward(std::vector<Matrix>& kept) const {
    Matrix hidden = product(kept.back(), transposed(up.value));
    for (double& unit : hidden.values) unit = std::tanh(unit);
    Matrix out = product(hidden, down.value);
    kolo::allreduce(tensor, kolo::view(out.values));
    add(out, bias.value);  // once, not once a rank
    add(out, kept.back());
    kept.push_back(std::move(hidden));
    kept.push_back(std::move(out));
  }
  /// Adds to the gradients. `error` is the derivative of the loss by the output; returns that by the input.
  Matrix backward(const Matrix& in, const Matrix& hidden, const Matrix& error) {
    add(down.gradient, product(transposed(hidden), error));
    add(bias.gradient, error);  // the same on all ranks of the group
    Matrix hidden_error = product(error, transposed(down.value));
    for (std::size_t i = 0; i < hidden.values.size(); ++i) hidden_error.values[i] *= 1 - std::pow(hidden.values[i], 2);
    add(up.gradient, product(transposed(hidden_error), in));
    Matrix in_error = product(hidden_error, up.value);
    kolo::allreduce(tensor, kolo::view(in_error.values));
    add(in_error, error);
    return in_error;
  }
};

/// What another stage sends in a step: one message a micro-batch, whose number is its tag. All receives are open from
/// the beginning, so no send waits for a rank that is itself sending: stages cannot wait for each other in a circle.
struct Inbox {
  std::vector<Matrix> messages;
  std::vector<kolo::Future<kolo::Received>> receives;
  Inbox(const kolo::Group& pipeline, int from, int count, const Matrix& like) : messages(count, like) {
    for (int tag = 0; tag < count; ++tag)
      receives.push_back(kolo::recv_async(pipeline, kolo::view(messages[tag].values), from, tag));
  }
  Matrix take(int micro_batch) {
    receives[micro_batch].wait();
    return std::move(messages[micro_batch]);
  }
};

struct Config {
  int tensor = 2, data = 2, pipeline = 2;  // degrees; their product is the number of ranks
  int blocks = 4, width = 16, hidden = 32;
  int steps = 10, batch_size = 32, micro_batches = 4;  // rows a step of all ranks; passes a step of each rank
};

class Trainer {
 public:
  /// All ranks of `world` make one. The ranks of a tensor group, which exchange most, are neighbours.
  Trainer(const kolo::Group& world, const Config& c)
      : config_(c), mesh_(world, {{"pipeline", c.pipeline}, {"data", c.data}, {"tensor", c.tensor}}),
        tensor_(mesh_["tensor"]), data_(mesh_["data"]), pipeline_(mesh_["pipeline"]),
        stage_(mesh_.coordinate("pipeline")), is_first_(stage_ == 0), is_last_(stage_ == c.pipeline - 1),
        blocks_(own_blocks()),
        optimizer_(data_, parameters(), make_sgd,
                   kolo::ShardedOptimizerOptions{}.with_reduction(
                       kolo::DistributedOptimizerOptions{}.with_accumulation_steps(c.micro_batches))) {
    kolo::broadcast_parameters(data_, parameters());  // those of replica 0
  }

  /// One step by the schedule 1F1B (Narayanan et al., "PipeDream", 2019): a stage runs as many micro-batches forward as
  /// there are stages behind it, then one forward and one backward in turn. Returns the mean loss over all ranks' rows.
  double step(int number) {
    const int count = config_.micro_batches, ahead = std::min(config_.pipeline - 1 - stage_, count);
    const Matrix empty(config_.batch_size / (config_.data * count), config_.width);
    Inbox inputs(pipeline_, stage_ - 1, is_first_ ? 0 : count, empty);
    Inbox errors(pipeline_, stage_ + 1, is_last_ ? 0 : count, empty);
    first_row_ = (std::int64_t{number} * config_.data + kolo::rank(data_)) * count * empty.rows;
    loss_ = 0;
    optimizer_.zero_grad();
    for (int i = 0; i < count + ahead; ++i) {
      if (i < count) forward(i, is_first_ ? rows_of(i, empty) : inputs.take(i));
      if (i >= ahead) backward(i - ahead, is_last_ ? compare(i - ahead) : errors.take(i - ahead));
    }
    if (kolo::rank(tensor_) > 0) loss_ = 0;  // one rank of each tensor group counts
    return kolo::allreduce(mesh_.group(), loss_ / (count * config_.data), kolo::ReduceOp::sum);
  }

  /// Of this rank's stage, its part.
  std::vector<kolo::Parameter> parameters() {
    std::vector<kolo::Parameter> list;
    for (Block& b : blocks_)
      for (Weight* w : {&b.up, &b.down, &b.bias})
        list.push_back({w->name, kolo::view(w->value.values), kolo::view(w->gradient.values)});
    return list;
  }

 private:
  static kolo::Sgd make_sgd(kolo::Span<const kolo::Parameter> mine) {
    return kolo::Sgd(mine, {/*learning_rate=*/0.1, /*momentum=*/0.9});
  }
  std::vector<Block> own_blocks() const {
    const int count = config_.blocks / config_.pipeline;
    std::vector<Block> blocks;
    for (int i = stage_ * count; i < (stage_ + 1) * count; ++i) {
      const int seed = 1000 * kolo::rank(data_) + 2 * i;  // data ranks start differently, until the broadcast
      blocks.emplace_back(tensor_, "block" + std::to_string(i), seed, config_.width, config_.hidden);
    }
    return blocks;
  }
  Matrix rows_of(int micro_batch, const Matrix& like) const {
    return random_rows(/*seed=*/1, first_row_ + micro_batch * like.rows, like.rows, like.columns, 1);
  }
  void forward(int micro_batch, Matrix in) {
    std::vector<Matrix>& kept = in_flight_.emplace_back();
    kept.push_back(std::move(in));
    for (const Block& block : blocks_) block.forward(kept);
    if (!is_last_) kolo::send(pipeline_, kolo::const_view(kept.back().values), stage_ + 1, micro_batch);
  }
  void backward(int micro_batch, Matrix error) {
    const std::vector<Matrix> kept = std::move(in_flight_.front());
    in_flight_.pop_front();
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      error = blocks_[i].backward(kept[2 * i], kept[2 * i + 1], error);
      for (std::size_t j = 3 * i; j < 3 * i + 3; ++j) optimizer_.gradient_ready(j);  // those of the block
    }
    if (!is_first_) kolo::send(pipeline_, kolo::const_view(error.values), stage_ - 1, micro_batch);
    optimizer_.step();  // after the last micro-batch: by the mean over micro-batches and data ranks
  }
  /// The loss is half the mean square of out - sin(3 in). Returns its derivative by the output.
  Matrix compare(int micro_batch) {
    const Matrix& out = in_flight_.front().back();
    Matrix error = rows_of(micro_batch, out);
    const auto elements = static_cast<double>(error.values.size());
    for (std::size_t i = 0; i < error.values.size(); ++i) {
      error.values[i] = (out.values[i] - std::sin(3 * error.values[i])) / elements;
      loss_ += std::pow(error.values[i], 2) * elements / 2;
    }
    return error;
  }

  Config config_;
  kolo::Mesh mesh_;
  kolo::Group tensor_, data_, pipeline_;
  int stage_;
  bool is_first_, is_last_;
  std::vector<Block> blocks_;
  kolo::ShardedOptimizer<kolo::Sgd> optimizer_;
  std::deque<std::vector<Matrix>> in_flight_;  // of each micro-batch between its passes: input, hidden, output, ...
  std::int64_t first_row_ = 0;                 // of this data rank in this step
  double loss_ = 0;
};

}  // namespace hybrid_trainer
