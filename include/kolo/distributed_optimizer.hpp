// SPDX-License-Identifier: Apache-2.0
//
// Makes an optimizer distributed: before it steps, every gradient is averaged over all ranks.
//
// A *micro-step* is one forward and backward pass; a *step* is `accumulation_steps` of them, the last of which reduces
// the gradients and updates the parameters.
//
//     optimizer.zero_grad();
//     net.forward_backward(batch, [&](std::size_t i) { optimizer.gradient_ready(i); });
//     optimizer.step();
#ifndef KOLO_DISTRIBUTED_OPTIMIZER_HPP
#define KOLO_DISTRIBUTED_OPTIMIZER_HPP

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo {

struct DistributedOptimizerOptions {
  /// `average` over ranks and micro-steps, or `sum` over both.
  ReduceOp op = ReduceOp::average;
  /// How many micro-steps make a step, 1 or more. The backward pass must add to the gradients, not overwrite them.
  int accumulation_steps = 1;
  /// Gradients are reduced as "<name>/<parameter>". Optimizers whose parameters share names need names of their own.
  std::string name = "gradients";
  /// When a reduction is given up, a fault of the world; `KOLO_TIMEOUT_S` when empty.
  std::optional<std::chrono::nanoseconds> timeout;
  /// `DType::float16` or `DType::bfloat16`: float32 and float64 gradients travel as that type and are summed in
  /// float32; see `AllreduceOptions::send_as`. 16-bit gradients are sent as they are. Pays where bytes are what takes
  /// the time: a slow network; inside a node gradients are reduced where they lie, which costs less than rounding them.
  std::optional<DType> send_gradients_as;

  DistributedOptimizerOptions& with_op(ReduceOp value) {
    op = value;
    return *this;
  }
  DistributedOptimizerOptions& with_accumulation_steps(int value) {
    accumulation_steps = value;
    return *this;
  }
  DistributedOptimizerOptions& with_name(std::string value) {
    name = std::move(value);
    return *this;
  }
  template <class Rep, class Period>
  DistributedOptimizerOptions& with_timeout(std::chrono::duration<Rep, Period> value) {
    timeout = detail::to_nanoseconds(value);
    return *this;
  }
  DistributedOptimizerOptions& with_send_gradients_as(DType value) {
    send_gradients_as = value;
    return *this;
  }
};

/// The part of a `DistributedOptimizer` that knows no optimizer: when which gradient is reduced, and with what weight.
/// For those who wrap another library's optimizer. One thread at a time; move-only; must not outlive its context or
/// the memory of its gradients. Destruction neither waits nor throws: gradients that were announced and not
/// synchronized may still be written to.
class KOLO_API GradientReducer {
 public:
  /// Collective, and checked, as `broadcast_parameters`: every rank gives the same list and the same options. Throws
  /// `Error`: mismatch, on every rank, when they disagree; invalid_argument for empty or repeated names, for options
  /// out of range, and for what no reduction can do (a null gradient, an average of integers); duplicate_name when
  /// another reducer has a gradient of that name.
  GradientReducer(Context& context, Span<const Parameter> parameters, const DistributedOptimizerOptions& options);
  GradientReducer(GradientReducer&&) noexcept;
  GradientReducer& operator=(GradientReducer&&) noexcept;
  ~GradientReducer();

  /// See `DistributedOptimizer`.
  void begin_micro_step(std::size_t samples);
  void gradient_ready(std::size_t index);
  bool synchronize();

  /// Ends the micro-step: whether the optimizer is to step now, its gradients reduced.
  [[nodiscard]] bool finish_micro_step();
  /// Tells the engine that the step has ended; after the optimizer's own.
  void end_step();
  /// Whether gradients may be zeroed: false between the micro-steps of one step, whose sum they hold. Throws `Error`
  /// (invalid_argument) while they are being reduced.
  [[nodiscard]] bool may_zero() const;
  /// How many of the gradients that were submitted in this step have been reduced.
  [[nodiscard]] std::size_t finished() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Wraps anything that has `step()`. Every rank makes one at the same place, over the same parameters, before or after
/// the broadcast, and runs the same number of micro-steps.
///
/// Every gradient counts in every step: one that a rank did not produce counts as what its memory holds, which is zero
/// after `zero_grad()`. Afterwards all ranks hold bitwise the same gradients, and an optimizer that computes the same
/// from the same keeps the parameters equal.
///
/// Batches of uneven size: give every rank's number of samples, by `step(samples)`, or by `begin_micro_step(samples)`
/// where gradients are announced. The result is then the sum of samples x gradient over ranks, divided by the sum of
/// samples: the gradient of the mean loss over the whole batch, if every rank's is that of the mean over its part.
///
/// Errors (`Error`): invalid_argument at the call that breaks a rule below, with nothing changed; else as any
/// collective, from `gradient_ready`, `synchronize` and `step`. After those the gradients are undefined, the optimizer
/// has not stepped, nothing is in flight, and the next micro-step begins a new step.
///
/// One thread at a time. The optimizer, the context and the parameters' memory outlive this. Move-only.
template <class Optimizer>
class DistributedOptimizer {
 public:
  /// Throws `Error`: as `GradientReducer`. The calling thread's context is asked now and not later.
  DistributedOptimizer(Optimizer& optimizer, Span<const Parameter> parameters, DistributedOptimizerOptions options = {})
      : DistributedOptimizer(current_context(), optimizer, parameters, std::move(options)) {}
  DistributedOptimizer(Context& context, Optimizer& optimizer, Span<const Parameter> parameters,
                       DistributedOptimizerOptions options = {})
      : optimizer_(&optimizer), reducer_(context, parameters, options) {}

  /// Zeroes the gradients, by the optimizer's `zero_grad()`; between the micro-steps of one step it does nothing, so
  /// that a loop reads the same with and without accumulation. An error while gradients are being reduced.
  void zero_grad() {
    if (reducer_.may_zero()) {
      optimizer_->zero_grad();
    }
  }

  /// Says how many samples (0 or more) this rank's batch has: before the backward pass, in every micro-step of a step
  /// or in none, and on every rank or on none. With accumulation a rank weighs the sum of its samples, and its own
  /// micro-steps count alike. Needs op average, and gradients in CPU memory. A rank without samples counts nothing,
  /// whatever its gradients hold; a step without any sample has zero gradients.
  void begin_micro_step(std::size_t samples) { reducer_.begin_micro_step(samples); }

  /// Announces that the backward pass has finished the gradient of parameter `index` (of the list given): in the last
  /// micro-step its reduction starts at once, and its memory must be left alone until `synchronize` or `step`. Once a
  /// micro-step at most, in any order, which may differ by rank. An error for a parameter without gradient.
  void gradient_ready(std::size_t index) { reducer_.gradient_ready(index); }

  /// Reduces what was not announced, last parameter first as a backward pass would, and waits for all. Returns true:
  /// the gradients are those that `step()` will use, which will not reduce again; look at them or clip them now. Before
  /// the last micro-step there is nothing to wait for: returns false.
  bool synchronize() { return reducer_.synchronize(); }

  /// Ends the micro-step. The last one synchronizes, if that was not done, steps the optimizer, and returns true.
  bool step() {
    if (!reducer_.finish_micro_step()) {
      return false;
    }
    optimizer_->step();
    reducer_.end_step();
    return true;
  }
  /// `begin_micro_step(samples)` and `step()`, where no gradient was announced before.
  bool step(std::size_t samples) {
    begin_micro_step(samples);
    return step();
  }

 private:
  Optimizer* optimizer_;
  GradientReducer reducer_;
};

}  // namespace kolo

#endif  // KOLO_DISTRIBUTED_OPTIMIZER_HPP
