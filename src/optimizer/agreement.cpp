// SPDX-License-Identifier: Apache-2.0
#include "optimizer/agreement.hpp"

#include <set>

#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

namespace kolo {

std::string optimizer::describe(std::string_view name, const TensorView& view) {
  std::string text = std::string(name) + ' ' + std::string(to_string(view.dtype())) + ' ' + to_string(view.shape());
  if (view.device() != cpu()) {
    text += " cuda";  // which of a host's devices it is differs by rank
  }
  return text;
}

void optimizer::check_names(std::string_view caller, const std::vector<std::string_view>& names) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(caller) + ": entry " + std::to_string(i) + " has no name; every one needs its own");
    }
    if (!seen.insert(names[i]).second) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(caller) + ": two entries are named " + quoted_name(names[i]) + "; names must differ");
    }
  }
}

void optimizer::check_gradient(std::string_view caller, const Parameter& parameter) {
  const TensorView& value = parameter.value;
  if (!parameter.gradient ||
      (parameter.gradient->dtype() == value.dtype() && parameter.gradient->shape() == value.shape())) {
    return;
  }
  const auto describe = [](const TensorView& view) {
    return std::string(to_string(view.dtype())) + ' ' + to_string(view.shape());
  };
  throw Error(ErrorCode::invalid_argument, std::string(caller) + ": the gradient of " + quoted_name(parameter.name) +
                                               " is " + describe(*parameter.gradient) + ", its value " +
                                               describe(value) + "; they must have the same type and shape");
}

void optimizer::check_root(std::string_view caller, const Group& group, int root) {
  if (root < 0 || root >= size(group)) {
    throw Error(ErrorCode::invalid_argument, std::string(caller) + ": root " + std::to_string(root) +
                                                 " is no rank; ranks are 0 to " + std::to_string(size(group) - 1));
  }
}

}  // namespace kolo
