// SPDX-License-Identifier: Apache-2.0

/// @file
/// The part of an optimizer that reduces gradients.
#ifndef KOLO_DETAIL_GRADIENT_REDUCER_HPP
#define KOLO_DETAIL_GRADIENT_REDUCER_HPP

#include <cstddef>
#include <memory>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo {
struct DistributedOptimizerOptions;
}  // namespace kolo

namespace kolo::detail {

/// The part of a `DistributedOptimizer` that decides when each gradient is reduced, and with what weight. It knows no
/// optimizer. The rules of `DistributedOptimizer` for threads, moves, its context and destruction hold for it, too.
class KOLO_API GradientReducer {
 public:
  /// After a reduction a rank has the whole gradient, or only its piece (`piece_of`). With pieces the reduction sends
  /// half as much, and the rest of the gradient's memory is undefined afterwards. `ShardedOptimizer` uses pieces.
  /// `own_piece_apart`: the pieces are in memory of the reducer's. A gradient's memory is given anew in every step
  /// (`place`), and is free again once it has been reduced. Of the list, types and shapes count alone.
  enum class Gets { all, own_piece, own_piece_apart };

  /// Throws `Error` as `DistributedOptimizer`.
  GradientReducer(const Group& group, Span<const Parameter> parameters, const DistributedOptimizerOptions& options,
                  Gets gets = Gets::all);
  GradientReducer(GradientReducer&&) noexcept;
  GradientReducer& operator=(GradientReducer&&) noexcept;
  ~GradientReducer();

  /// See `DistributedOptimizer`.
  void begin_micro_step(std::size_t samples);
  void gradient_ready(std::size_t index);
  bool synchronize();
  /// With `own_piece_apart`: gradient `index` lies in this memory from now on, until it has been reduced. Before
  /// `gradient_ready`, in every micro-step in which it lies elsewhere than in the one before. A gradient without a
  /// place counts as zero. Throws `Error` (invalid_argument) for another type or number of elements, and while it is
  /// being reduced.
  void place(std::size_t index, const TensorView& memory);
  /// This rank's piece of gradient `index`, which has one.
  [[nodiscard]] const TensorView& piece(std::size_t index) const;
  /// Whether gradient `index` has been reduced in this step, or has no place: then its memory may be freed.
  [[nodiscard]] bool is_free(std::size_t index) const;
  /// `begin_micro_step` after the backward pass, for `step(samples)`; only if a step is one micro-step.
  void give_samples_late(std::size_t samples);

  /// Ends the micro-step. Returns whether the gradients have been reduced and the optimizer is to step now.
  [[nodiscard]] bool finish_micro_step();
  /// Ends a step early, and reduces the gradients of its micro-steps so far. Returns whether the optimizer is to step
  /// now.
  [[nodiscard]] bool flush();
  /// With pieces, on a rank that has no more data: waits for the next step of the ranks that have, and takes part in it
  /// with gradients of zero. Averages are over the others. Returns whether the optimizer is to step now; false: no rank
  /// has data any more, and all follow. Between steps.
  [[nodiscard]] bool follow_step();
  /// Of gradients that have been reduced, in float32 or float64 in memory of the CPU (else unsupported): divides them
  /// by `scale`. Returns whether all were finite; with pieces this rank's.
  [[nodiscard]] bool unscale(double scale);
  /// Tells the engine that the step has ended. Call it after the optimizer's own step.
  void end_step();
  /// The errors of compression that later steps still add: this rank's pieces (`piece_of`) in float32,
  /// "compression/<parameter>". Copies, valid until the next call of this or of `begin_load`. Collective, between
  /// steps. Empty without compression.
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  /// The same to be overwritten by a load, which `end_load` ends (kolo/optimizer_state.hpp). Local, between steps.
  [[nodiscard]] std::vector<NamedView> begin_load();
  void end_load();
  /// Where in the parameters' values those pieces would lie, under the same names.
  [[nodiscard]] Span<const Parameter> places() const;
  /// Whether gradients may be zeroed: false between the micro-steps of one step, whose sum they hold. Throws `Error`
  /// (invalid_argument) while they are being reduced.
  [[nodiscard]] bool may_zero() const;
  /// How many of the gradients that were submitted in this step have been reduced.
  [[nodiscard]] std::size_t finished() const;

 private:
  struct Impl;
  [[nodiscard]] Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_GRADIENT_REDUCER_HPP
