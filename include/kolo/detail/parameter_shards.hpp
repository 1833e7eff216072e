// SPDX-License-Identifier: Apache-2.0

/// @file
/// The part of a sharded optimizer that shares out the parameters.
#ifndef KOLO_DETAIL_PARAMETER_SHARDS_HPP
#define KOLO_DETAIL_PARAMETER_SHARDS_HPP

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/detail/gradient_reducer.hpp>
#include <kolo/export.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo {
struct ShardedOptimizerOptions;
}  // namespace kolo

namespace kolo::detail {

/// The part of a `ShardedOptimizer` that knows no optimizer: gradients come in as pieces, and values go out. The rules
/// of `GradientReducer` apply, also to a destruction while values are under way.
class KOLO_API ParameterShards {
 public:
  /// Throws `Error` as `ShardedOptimizer`.
  ParameterShards(const Group& group, Span<const Parameter> parameters, const ShardedOptimizerOptions& options);
  ParameterShards(ParameterShards&&) noexcept;
  ParameterShards& operator=(ParameterShards&&) noexcept;
  ~ParameterShards();

  /// See `ShardedOptimizer`.
  [[nodiscard]] Span<const Parameter> pieces() const;
  [[nodiscard]] Span<const Parameter> places() const;
  /// What `GradientReducer::state` says, and the copies in float32, "master/<parameter>"; none without `cast`.
  [[nodiscard]] std::vector<ConstNamedView> state() const;
  /// Where a load writes both (kolo/optimizer_state.hpp).
  [[nodiscard]] std::vector<NamedView> begin_load();
  void end_load();
  /// Gradients arrive in `pieces()`.
  [[nodiscard]] GradientReducer& reducer() const;
  /// Zeroes all gradients; between the micro-steps of one step it does nothing.
  void zero_grad();
  /// After the reduction, before the optimizer's own step: waits for the last step's values, compares them over the
  /// ranks if KOLO_CHECK_REPLICAS says so, divides the gradients by `scale`, where it is given, and clips. Returns
  /// whether the optimizer is to step: not if a gradient of any rank was infinite or no number while there is a scale
  /// or a `max_norm`.
  [[nodiscard]] bool before_step(std::optional<double> scale = std::nullopt);
  /// After the optimizer's own step: gives the other ranks this rank's values, and ends the step. Waits for theirs, but
  /// with `gather_late`.
  void after_step();
  /// In place of the optimizer's own step and `after_step`.
  void skip_step();
  /// See `ShardedOptimizer`.
  void wait_parameter(std::size_t index);
  void wait_parameters();
  [[nodiscard]] std::optional<double> norm() const;

 private:
  struct Impl;
  [[nodiscard]] Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_PARAMETER_SHARDS_HPP
