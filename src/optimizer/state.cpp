// SPDX-License-Identifier: Apache-2.0
#include "optimizer/state.hpp"

#include <array>
#include <charconv>
#include <utility>

#include <kolo/error.hpp>

#include "optimizer/agreement.hpp"
#include "optimizer/elements.hpp"

namespace kolo::optimizer {

std::vector<Parameter> checked_trainable(std::string_view caller, std::vector<Parameter> parameters) {
  check_names(caller, parameters);
  std::vector<Parameter> trainable;
  for (Parameter& parameter : parameters) {
    if (!parameter.gradient) {
      continue;
    }
    const auto value = [&parameter] { return quoted_name(parameter.name); };
    const auto gradient = [&value] { return "the gradient of " + value(); };
    check_computable(caller, value, parameter.value);
    check_computable(caller, gradient, *parameter.gradient);
    check_gradient(caller, parameter);
    trainable.push_back(std::move(parameter));
  }
  return trainable;
}

std::string spell(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return {text.data(), end};
}

void check_option(std::string_view caller, std::string_view name, double value, double below) {
  const bool bounded = below > 0;
  if (value >= 0 && (!bounded || value < below)) {
    return;
  }  // false for NaN
  throw Error(ErrorCode::invalid_argument, std::string(caller) + ": " + std::string(name) + " is " + spell(value) +
                                               "; it must be 0 or more" +
                                               (bounded ? " and below " + spell(below) : ""));
}

std::vector<Tensor> zeroed_like(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const Parameter& parameter : parameters) {
    tensors.emplace_back(parameter.value.dtype(), parameter.value.shape());
    fill_zero(tensors.back().view());
  }
  return tensors;
}

void zero_gradients(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    fill_zero(*parameter.gradient);
  }
}

}  // namespace kolo::optimizer
