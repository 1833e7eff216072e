// SPDX-License-Identifier: Apache-2.0
//
// What `Sgd` and `AdamW` have in common: checked parameters and options, and state in the form of named views.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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

/// Views of a scalar and of one tensor a parameter, as `state()` gives them: to be read, if they are of const memory.
template <class T>
auto scalar_view(std::string name, T& value) {
  if constexpr (std::is_const_v<T>) {
    return ConstNamedView{std::move(name), const_view(&value, Shape{})};
  } else {
    return NamedView{std::move(name), view(&value, Shape{})};
  }
}
template <class View, class Tensors>
void append_views(std::vector<View>& state, const std::string& prefix, const std::vector<Parameter>& parameters,
                  Tensors& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    state.push_back({prefix + '/' + parameters[i].name, tensors[i].view()});
  }
}

/// Zeroes every gradient.
void zero_gradients(const std::vector<Parameter>& parameters);

}  // namespace kolo::optimizer
