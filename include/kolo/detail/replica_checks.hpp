// SPDX-License-Identifier: Apache-2.0

/// @file
/// When optimizers compare their parameters over the ranks.
#ifndef KOLO_DETAIL_REPLICA_CHECKS_HPP
#define KOLO_DETAIL_REPLICA_CHECKS_HPP

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/export.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo::detail {

/// KOLO_CHECK_REPLICAS: -1: optimizers compare nothing; 0: before the first step; N: also after every N-th.
[[nodiscard]] KOLO_API std::int64_t replica_interval(const Group& group);
/// `check_replicas`, as the collective `name`, else in the order of such calls. With `step` of those alone that
/// KOLO_CHECK_REPLICAS does not leave out, and the sentence says when: after that step, or before the first (0).
KOLO_API void check_replicas_at(const Group& group, std::optional<std::string_view> name,
                                Span<const Parameter> parameters, std::optional<std::int64_t> step);

/// KOLO_CHECK_REPLICAS for one optimizer: counts its steps.
class ReplicaChecks {
 public:
  /// `name`: what its gradients' names begin with.
  ReplicaChecks(const Group& group, std::string name)
      : every_(size(group) == 1 ? -1 : replica_interval(group)), name_(std::move(name)) {}
  /// A step is about to change parameters: whether they are to be compared now.
  [[nodiscard]] bool is_due_before_step() const noexcept { return every_ >= 0 && !has_compared_; }
  /// A step has ended: whether the parameters are to be compared now.
  [[nodiscard]] bool is_due_after_step() noexcept { return ++steps_ > 0 && every_ > 0 && steps_ % every_ == 0; }
  /// Those that have a gradient: each rank may compute buffers from its own batches.
  void compare(const Group& group, Span<const Parameter> parameters) {
    std::vector<Parameter> trained;
    for (const Parameter& parameter : parameters) {
      if (parameter.gradient) trained.push_back(parameter);
    }
    // Optimizers of one name have other parameters, and may step on several threads at once.
    if (!trained.empty()) check_replicas_at(group, name_ + '/' + trained.front().name + " (replicas)", trained, steps_);
    has_compared_ = true;
  }

 private:
  std::int64_t every_;
  std::string name_;
  std::int64_t steps_ = 0;
  bool has_compared_ = false;
};

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_REPLICA_CHECKS_HPP
