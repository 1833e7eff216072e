// SPDX-License-Identifier: Apache-2.0
//
// Shares an optimizer's state among the ranks: each keeps it for its piece of every parameter, steps that piece, and
// gets the others' values by an all-gather. (ZeRO's stages 1 and 2: Rajbhandari and others, "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models", 2020.)
//
//     kolo::ShardedOptimizer optimizer(net.parameters(), [](kolo::Span<const kolo::Parameter> mine) {
//       return kolo::AdamW(mine, kolo::AdamWOptions().with_learning_rate(1e-3));
//     });
//     optimizer.zero_grad();
//     net.forward_backward(batch, [&](std::size_t i) { optimizer.gradient_ready(i); });
//     optimizer.step();
#ifndef KOLO_SHARDED_OPTIMIZER_HPP
#define KOLO_SHARDED_OPTIMIZER_HPP

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/detail/parameter_shards.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/export.hpp>
#include <kolo/loss_scaler.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

struct ShardedOptimizerOptions {
  /// ZeRO's stage. 0: every rank keeps all of the state, and steps all parameters. 1: its share. 2: its share of the
  /// gradients, too: each is given by `gradient_ready(i, memory)`, and its memory is free once it has been reduced.
  int stage = 1;
  /// How gradients are reduced: by reduce-scatters, as "<name>/<parameter>". Values are gathered as
  /// "<name>/<parameter> (value)".
  DistributedOptimizerOptions reduction;
  /// If set: before every step all gradients are multiplied by max_norm / (norm + 1e-6), where that is below 1. The
  /// norm is that of all gradients together, as torch.nn.utils.clip_grad_norm_ has it. If it is infinite or no number,
  /// the step is skipped on every rank: it would make all values NaN. More than 0.
  std::optional<double> max_norm;
  /// Whether `step` returns before the other ranks' values have come. Then call `wait_parameter(i)` before the next
  /// forward pass reads parameter i.
  bool gather_late = false;
  /// If set: the optimizer steps copies in float32 of values that have 16 bits (master weights), with gradients in
  /// float32. This copies elements of one view to another of as many, rounding where it must.
  std::function<void(const TensorView& from, const TensorView& to)> cast;

  KOLO_SETTER(ShardedOptimizerOptions, int, stage)
  KOLO_SETTER(ShardedOptimizerOptions, DistributedOptimizerOptions, reduction)
  KOLO_SETTER(ShardedOptimizerOptions, double, max_norm)
  KOLO_SETTER(ShardedOptimizerOptions, bool, gather_late)
  KOLO_SETTER(ShardedOptimizerOptions, std::function<void(const TensorView& from, const TensorView& to)>, cast)
};

/// An optimizer whose state is shared among the ranks of a group. Every rank makes one at the same place, over the same
/// parameters, after the broadcast: all ranks must hold the same values, which is compared once, in the first step
/// before anything is changed. It is used as `DistributedOptimizer` is, and
/// what that says of micro-steps, samples, accumulation and errors holds here. Weights are bitwise those of a
/// `DistributedOptimizer` around the same optimizer (without `max_norm`, whose sum has another order).
///
/// What differs:
/// - The optimizer is made by a function from this rank's pieces (`pieces()`). It must work element by
///   element, as SGD, Adam and AdamW do: it sees a piece of each tensor, in one row.
/// - After a reduction a rank has its own pieces of the gradients; the rest of their memory is undefined. So clip by
///   `max_norm`.
/// - A rank that has no more data calls `join()`, and not `kolo::join`.
/// - Parameters lie in memory of the CPU. Gradients may lie in a `GradientArena` (not in stage 2).
template <class Optimizer>
class ShardedOptimizer {
 public:
  /// `make` gets a `Span<const Parameter>` and returns the optimizer. Uses the calling thread's context of now, also
  /// later. Throws `Error` as `DistributedOptimizer`; unsupported if a parameter with a gradient is not in memory of
  /// the CPU; invalid_argument for a stage that is not 0, 1 or 2, and for a max_norm that is not more than 0 or
  /// gradients that are neither float32 nor float64 with one; and what `make` throws.
  template <class Make>
  ShardedOptimizer(Span<const Parameter> parameters, const Make& make, const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(current_context(), parameters, make, options) {}
  template <class Make>
  ShardedOptimizer(const Group& group, Span<const Parameter> parameters, const Make& make,
                   const ShardedOptimizerOptions& options = {})
      : shards_(group, parameters, options), optimizer_(make(shards_.pieces())) {}

  /// As those of `DistributedOptimizer`.
  void zero_grad() { shards_.zero_grad(); }
  void begin_micro_step(std::size_t samples) { shards_.reducer().begin_micro_step(samples); }
  void gradient_ready(std::size_t index) { shards_.reducer().gradient_ready(index); }
  /// In stage 2: says where gradient `index` lies in this micro-step. With accumulation the memory holds the sum of the
  /// micro-steps, and stays what it is from the first to the last of them.
  void gradient_ready(std::size_t index, const TensorView& memory) {
    shards_.reducer().place(index, memory);
    shards_.reducer().gradient_ready(index);
  }
  /// In stage 2: whether the memory of gradient `index` may be freed: it has been reduced. All may once `step` returned
  /// true.
  [[nodiscard]] bool is_free(std::size_t index) const { return shards_.reducer().is_free(index); }
  bool synchronize() { return shards_.reducer().synchronize(); }
  /// Returns whether the optimizer has stepped: not before the last micro-step, and not with `max_norm` if the norm is
  /// infinite or no number (`norm()`), on no rank then.
  bool step() { return shards_.reducer().finish_micro_step() && apply(); }
  bool step(std::size_t samples) {
    shards_.reducer().give_samples_late(samples);
    return step();
  }
  bool flush() { return shards_.reducer().flush() && apply(); }
  bool step(LossScaler& scaler) { return shards_.reducer().finish_micro_step() && apply(&scaler); }

  /// This rank is out of data: takes part in the others' steps, with nothing, until all ranks have joined. Averages are
  /// over the ranks that have data. Every rank calls it at the end, between steps. Throws what `step` throws.
  void join() {
    while (shards_.reducer().follow_step()) apply();
  }
  /// The same where the others call `step(scaler)`.
  void join(LossScaler& scaler) {
    while (shards_.reducer().follow_step()) apply(&scaler);
  }

  /// Waits until all ranks' values of parameter `index` (of the list given) have come; at once for a buffer.
  void wait_parameter(std::size_t index) { shards_.wait_parameter(index); }
  /// Waits for all of them.
  void wait_parameters() { shards_.wait_parameters(); }

  /// The norm of all gradients before the last step clipped or skipped them; nothing before the first step, or with
  /// neither `max_norm` nor a scaler.
  [[nodiscard]] std::optional<double> norm() const { return shards_.norm(); }
  /// The optimizer over this rank's pieces: to change its learning rate, or to save its state.
  [[nodiscard]] Optimizer& optimizer() noexcept { return optimizer_; }
  /// This rank's pieces, which `optimizer()` steps: of each parameter that has a gradient, in the order of the list,
  /// value and gradient in one row, under the parameter's name. Where a parameter has fewer elements than there are
  /// ranks, some have none of it; such a piece is left out. In stage 0 the whole parameters.
  [[nodiscard]] Span<const Parameter> pieces() const { return shards_.pieces(); }
  /// The pieces' places in the parameters' memory, in the same order: with `cast`, pieces of 16 bits are elsewhere. In
  /// stage 0 `DistributedOptimizer::places`.
  [[nodiscard]] Span<const Parameter> places() const { return shards_.places(); }
  /// For checkpoints: waits for all values; the optimizer's state (`optimizer().state()`), what
  /// `DistributedOptimizer::state` adds, and the copies in float32, "master/<parameter>", where there is `cast`.
  [[nodiscard]] std::vector<ConstNamedView> state() {
    shards_.wait_parameters();
    return detail::joined(detail::state_of(optimizer_, 0), shards_.state());
  }
  /// Where a load writes (kolo/optimizer_state.hpp); waits, too.
  [[nodiscard]] std::vector<NamedView> begin_load() {
    shards_.wait_parameters();
    return detail::joined(detail::begin_load(optimizer_, 0), shards_.begin_load());
  }
  void end_load() {
    detail::end_load(optimizer_, 0);
    shards_.end_load();
  }

 private:
  bool apply(LossScaler* scaler = nullptr) {
    const bool steps = shards_.before_step(scaler == nullptr ? std::nullopt : std::optional<double>(scaler->scale()));
    if (scaler != nullptr) scaler->update(!steps);
    if (!steps) {
      shards_.skip_step();
      return false;
    }
    optimizer_.step();
    shards_.after_step();
    return true;
  }

  detail::ParameterShards shards_;
  Optimizer optimizer_;
};

template <class Make>
ShardedOptimizer(Span<const Parameter>, const Make&)
    -> ShardedOptimizer<std::decay_t<std::invoke_result_t<const Make&, Span<const Parameter>>>>;
template <class Make>
ShardedOptimizer(Span<const Parameter>, const Make&, const ShardedOptimizerOptions&)
    -> ShardedOptimizer<std::decay_t<std::invoke_result_t<const Make&, Span<const Parameter>>>>;
template <class Make>
ShardedOptimizer(const Group&, Span<const Parameter>, const Make&)
    -> ShardedOptimizer<std::decay_t<std::invoke_result_t<const Make&, Span<const Parameter>>>>;
template <class Make>
ShardedOptimizer(const Group&, Span<const Parameter>, const Make&, const ShardedOptimizerOptions&)
    -> ShardedOptimizer<std::decay_t<std::invoke_result_t<const Make&, Span<const Parameter>>>>;

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_SHARDED_OPTIMIZER_HPP
