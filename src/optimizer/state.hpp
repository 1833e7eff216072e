// SPDX-License-Identifier: Apache-2.0
//
// What `Sgd` and `AdamW` have in common: checked parameters and options, and state in the form of named views.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo::optimizer {

/// The parameters that have a gradient. Throws `Error` as `Sgd`'s constructor says, beginning with `caller`.
std::vector<Parameter> checked_trainable(std::string_view caller, std::vector<Parameter> parameters);

/// A number in an error message: at most 6 digits, and the same whatever locale the program has set.
std::string spell(double value);

/// Throws `Error` (invalid_argument) unless `value` is at least 0 and, where `below` is given, less than that.
void check_option(std::string_view caller, std::string_view name, double value, double below = 0);

/// One zeroed tensor a parameter, of its type and shape.
std::vector<Tensor> zeroed_like(const std::vector<Parameter>& parameters);

/// Views of a scalar and of one tensor a parameter, as `state()` gives them.
NamedView scalar_view(std::string name, double& value);
NamedView scalar_view(std::string name, bool& value);
NamedView scalar_view(std::string name, std::int64_t& value);
void append_views(std::vector<NamedView>& state, const std::string& prefix, const std::vector<Parameter>& parameters,
                  std::vector<Tensor>& tensors);

/// Zeroes every gradient.
void zero_gradients(const std::vector<Parameter>& parameters);

}  // namespace kolo::optimizer
