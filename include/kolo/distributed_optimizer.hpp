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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/detail/gradient_reducer.hpp>
#include <kolo/detail/replica_checks.hpp>
#include <kolo/export.hpp>
#include <kolo/loss_scaler.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

/// How gradients are made smaller on their way.
enum class Compression : std::uint8_t {
  none = 0,
  /// As integers of 8 bits, in blocks of 256 elements with a scale each: a quarter of float32's bytes. What rounding
  /// loses in a step is added to the gradient of the next (error feedback).
  int8_blocks = 1,
};

/// The same on every rank.
struct DistributedOptimizerOptions {
  /// `average` over ranks and micro-steps, or `sum` over both.
  ReduceOp op = ReduceOp::average;
  /// How many micro-steps make a step, 1 or more. The backward pass must add to the gradients, not overwrite them.
  int accumulation_steps = 1;
  /// Gradients are reduced as "<name>/<parameter>". Optimizers whose parameters share names need names of their own.
  std::string name = "gradients";
  /// How long a reduction may take before it becomes a fatal error; `KOLO_TIMEOUT_S` when empty.
  std::optional<std::chrono::nanoseconds> timeout;
  /// `DType::float16` or `DType::bfloat16`: float32 and float64 gradients travel as that type and are summed in
  /// float32 (by NCCL: in that type); see `AllreduceOptions::send_as`. 16-bit gradients are sent as they are. It helps
  /// on a slow network. Inside a node it costs time: gradients are reduced where they lie, which costs less than
  /// rounding them.
  std::optional<DType> send_gradients_as;
  /// `Compression::int8_blocks`, instead of `send_gradients_as`: float32 and float64 gradients in memory of the CPU
  /// travel in blocks of 8 bits. For networks that are slower than a rank computes. Each rank needs memory for 7 bytes
  /// an element. The ranks' gradients are then equal bit for bit, as always, and those of one process approximately.
  /// All ranks take part in every step: `kolo::join` is an error (`ShardedOptimizer::join` is not).
  Compression compression = Compression::none;
  /// Whether waiting gradients of the first parameters are reduced before those of later ones, because the next forward
  /// pass needs the first parameters first. Uses 16 priorities (`AllreduceOptions::priority`), from 16 for the first
  /// sixteenth of all bytes down to 1. `step()` waits for all gradients in any case.
  bool first_layers_first = false;
  /// Whether every step ends with a copy of rank 0's buffers (running means, say: what has no gradient) to every rank.
  bool broadcast_buffers = false;

  KOLO_SETTER(DistributedOptimizerOptions, ReduceOp, op)
  KOLO_SETTER(DistributedOptimizerOptions, int, accumulation_steps)
  KOLO_SETTER(DistributedOptimizerOptions, std::string, name)
  KOLO_SETTER_TIMEOUT(DistributedOptimizerOptions)
  KOLO_SETTER(DistributedOptimizerOptions, DType, send_gradients_as)
  KOLO_SETTER(DistributedOptimizerOptions, Compression, compression)
  KOLO_SETTER(DistributedOptimizerOptions, bool, first_layers_first)
  KOLO_SETTER(DistributedOptimizerOptions, bool, broadcast_buffers)
};

/// This rank's piece of a tensor that the ranks of the group share: of its n elements, in one row, n / size of them, in
/// the order of ranks, and the first n % size ranks have one more. A view of the tensor's memory.
[[nodiscard]] KOLO_API TensorView piece_of(const Group& group, const TensorView& tensor);

namespace detail {
/// Throws `Error` (invalid_argument) unless both lists have the same values and gradients, in any order.
KOLO_API void check_stepped(Span<const Parameter> given, Span<const Parameter> stepped);

/// Calls `check_stepped` for an optimizer that has `parameters()`; does nothing for another.
template <class Optimizer>
auto check_stepped_by(const Optimizer& optimizer, Span<const Parameter> given, int)
    -> decltype(check_stepped(given, optimizer.parameters())) {
  check_stepped(given, optimizer.parameters());
}
template <class Optimizer>
void check_stepped_by(const Optimizer& /*optimizer*/, Span<const Parameter> /*given*/, long) {}
}  // namespace detail

/// Wraps anything that has `step()`. Every rank makes one at the same place, over the same parameters, before or after
/// the broadcast, and runs the same number of micro-steps. A rank that has fewer joins (`kolo::join`); later averages
/// are over the ranks that have not joined.
///
/// Every gradient counts in every step. If a rank did not produce one, its memory counts as it is: zero after
/// `zero_grad()`. After the reduction all ranks hold bitwise the same gradients, so a deterministic optimizer keeps the
/// parameters equal.
///
/// The result, with op average. Without samples it is the mean over ranks and micro-steps. With samples
/// (`begin_micro_step(samples)` before every backward pass, or `step(samples)`) it is the sum of samples x gradient
/// over all ranks and micro-steps, divided by the sum of samples. If every backward pass adds the gradient of the mean
/// loss over its own rows, that is the gradient of the mean loss over all rows of the step. The order of the
/// arithmetic, with n samples in a micro-step, c samples in the last micro-step before it that had any, N in the whole
/// step, and `size` ranks that have not joined:
///
///     memory = memory x (c / n)                            before the micro-step, unless c = n
///     memory = memory + gradient                           the backward pass
///     memory = memory x (c x size x accumulation_steps / N)    after the last one, unless that is 1
///     memory = average over ranks x (1 / accumulation_steps)   the reduction
///
/// with factors computed in float64 and rounded to the gradient's type. Equal numbers give bitwise what no numbers
/// give. Ranks that disagree (some give samples and others none; without samples, other numbers of micro-steps) get an
/// error on every rank, in the step in which they do (mismatch).
///
/// Errors (`Error`): a call that breaks a rule below throws invalid_argument and changes nothing. `gradient_ready`,
/// `synchronize` and `step` also throw what collectives throw; then the gradients are undefined, the optimizer has not
/// stepped, nothing is in flight, and the next micro-step begins a new step.
///
/// All ranks must hold the same parameters when the first step begins. That is compared once, before the optimizer
/// steps (`check_replicas`); if they differ, the first `step` throws on every rank (mismatch) as often as it is tried.
/// KOLO_CHECK_REPLICAS turns it off, leaves parameters out, or compares after later steps, too.
///
/// One thread at a time. The optimizer and the parameters' memory must outlive this. Move-only; after a move, only
/// destruction and assignment are allowed (else `Error`, invalid_argument). Its context may be moved; once the context
/// is destroyed or shut down, calls throw `Error`.
///
/// Destruction. Nothing touches a gradient afterwards. If gradients are being reduced, that is finished first, as by
/// `synchronize` but without errors, so that other ranks need not wait for this one. If an exception destroys the
/// object, nothing is waited for: open reductions end this rank's part of the job, as for any handle (see `Handle`),
/// and the other ranks' operations fail.
template <class Optimizer>
class DistributedOptimizer {
 public:
  /// Collective, and checked as `broadcast_parameters`: every rank gives the same list and the same options. Throws
  /// `Error`: mismatch, on every rank, if ranks disagree; invalid_argument for empty or repeated names, a gradient
  /// whose type or shape differs from its value's, options out of range, a null gradient or an average of integers, and
  /// if the optimizer has `parameters()` (as `Sgd` and `AdamW` have) and these differ from the list or use other
  /// memory; duplicate_name if another optimizer has a gradient of that name. Uses the calling thread's context of now,
  /// also later.
  DistributedOptimizer(Optimizer& optimizer, Span<const Parameter> parameters, DistributedOptimizerOptions options = {})
      : DistributedOptimizer(current_context(), optimizer, parameters, std::move(options)) {}
  DistributedOptimizer(const Group& group, Optimizer& optimizer, Span<const Parameter> parameters,
                       DistributedOptimizerOptions options = {})
      : optimizer_(&optimizer), reducer_(group, checked(optimizer, parameters), options), group_(group),
        replicas_(group, options.name), parameters_(parameters.begin(), parameters.end()),
        broadcasts_buffers_(options.broadcast_buffers) {}

  /// Zeroes the gradients, by the optimizer's `zero_grad()`; between the micro-steps of one step it does nothing, so
  /// that a loop reads the same with and without accumulation. An error while gradients are being reduced.
  void zero_grad() {
    if (reducer_.may_zero()) {
      optimizer_->zero_grad();
    }
  }

  /// Says how many samples (0 or more) the micro-step that begins has on this rank: before its backward pass, in every
  /// micro-step of a step or in none, and on every rank or on none. Needs op average, and float32 or float64 gradients
  /// in CPU memory. A micro-step without samples counts nothing, whatever its backward pass does to the gradients; a
  /// step without any sample on any rank has zero gradients.
  void begin_micro_step(std::size_t samples) { reducer_.begin_micro_step(samples); }

  /// Announces that the backward pass has finished the gradient of parameter `index` (of the list given): in the last
  /// micro-step its reduction starts at once, and its memory must be left alone until `synchronize` or `step`. Once a
  /// micro-step at most, in any order, which may differ by rank. An error for a parameter without gradient.
  void gradient_ready(std::size_t index) { reducer_.gradient_ready(index); }

  /// Submits the gradients that were not announced, the last parameter first, as a backward pass would, and waits for
  /// all. Returns true if the gradients are now those that `step()` will use (it does not reduce again): look at them
  /// or clip them now. Returns false before the last micro-step, when there is nothing to wait for.
  bool synchronize() { return reducer_.synchronize(); }

  /// Ends the micro-step. The last one synchronizes, if that was not done, steps the optimizer, and returns true.
  bool step() { return reducer_.finish_micro_step() && apply(); }
  /// The same where the loss was multiplied by `scaler.scale()`: divides the gradients by it. If one is not finite the
  /// optimizer does not step, on any rank. Tells the scaler. Returns whether the optimizer has stepped.
  bool step(LossScaler& scaler) { return reducer_.finish_micro_step() && apply(&scaler); }
  /// `begin_micro_step(samples)` and `step()`, where no gradient was announced before. An error with accumulation_steps
  /// above 1, where samples must be known before the backward pass.
  bool step(std::size_t samples) {
    reducer_.give_samples_late(samples);
    return step();
  }

  /// Ends a step early: reduces the gradients of the micro-steps since the last step, as their mean, and steps the
  /// optimizer. Call it at the end of an epoch, so that leftover micro-steps do not enter the next one. Collective:
  /// every rank calls it between micro-steps, at the same place, even if it has nothing left. Returns whether the
  /// optimizer has stepped: false, on every rank, if no rank has anything left. Without samples all ranks must have
  /// made the same number of micro-steps (else mismatch, on every rank); with samples any number, also none.
  /// `before_step` is called between the reduction and the step, to clip, say.
  bool flush(const std::function<void()>& before_step = {}) { return reducer_.flush() && apply(nullptr, before_step); }

  /// The optimizer that it was made around.
  [[nodiscard]] Optimizer& optimizer() const noexcept { return *optimizer_; }
  /// For checkpoints: the optimizer's state (`optimizer().state()`), and the errors of compression that later steps
  /// still add; where in the parameters' values those would lie.
  [[nodiscard]] std::vector<ConstNamedView> state() const {
    return detail::joined(detail::state_of(*optimizer_, 0), reducer_.state());
  }
  /// Where a load writes (kolo/optimizer_state.hpp).
  [[nodiscard]] std::vector<NamedView> begin_load() {
    return detail::joined(detail::begin_load(*optimizer_, 0), reducer_.begin_load());
  }
  void end_load() {
    detail::end_load(*optimizer_, 0);
    reducer_.end_load();
  }
  [[nodiscard]] Span<const Parameter> places() const { return reducer_.places(); }

 private:
  static Span<const Parameter> checked(const Optimizer& optimizer, Span<const Parameter> parameters) {
    detail::check_stepped_by(optimizer, parameters, 0);
    return parameters;
  }

  /// Ends a step whose gradients have been reduced. Returns whether the optimizer has stepped.
  bool apply(LossScaler* scaler = nullptr, const std::function<void()>& before_step = {}) {
    if (replicas_.is_due_before_step()) replicas_.compare(group_, parameters_);
    const bool steps = scaler == nullptr || reducer_.unscale(scaler->scale());
    if (before_step) before_step();
    if (steps) optimizer_->step();
    if (scaler != nullptr) scaler->update(!steps);
    reducer_.end_step();
    if (replicas_.is_due_after_step()) replicas_.compare(group_, parameters_);
    if (broadcasts_buffers_) detail::broadcast_buffers(group_, parameters_);
    return steps;
  }

  Optimizer* optimizer_;
  detail::GradientReducer reducer_;
  Group group_;
  detail::ReplicaChecks replicas_;
  std::vector<Parameter> parameters_;
  bool broadcasts_buffers_;
};

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_DISTRIBUTED_OPTIMIZER_HPP
