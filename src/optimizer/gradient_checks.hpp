// SPDX-License-Identifier: Apache-2.0
//
// What is found out about a DistributedOptimizer's parameters and options before anything is reduced.
#pragma once

#include <string>
#include <vector>

#include <kolo/distributed_optimizer.hpp>
#include <kolo/parameters.hpp>

namespace kolo::optimizer {

/// Throws `Error` (invalid_argument) for options that make no sense, and for a gradient of another type or shape than
/// its value.
void check_options(Span<const Parameter> parameters, const DistributedOptimizerOptions& options);

/// What ranks must agree on (check_agreement).
std::vector<std::string> entries_of(Span<const Parameter> parameters, const DistributedOptimizerOptions& options);

/// The priorities of the gradients' reductions, by parameter; the last one is that of what the ranks say of a step, for
/// which gradients may wait. They are few, because a batch of a plan ends before a tensor that is less urgent than one
/// in it: so most neighbours have one, in whatever order they become ready.
std::vector<int> priorities_of(Span<const Parameter> parameters, const DistributedOptimizerOptions& options);

}  // namespace kolo::optimizer
