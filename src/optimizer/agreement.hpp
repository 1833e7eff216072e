// SPDX-License-Identifier: Apache-2.0
//
// Finding out that all ranks mean the same before tensors are sent. The engine compares what ranks say about one name;
// a name that only some ranks know it could only wait for. So lists of names are compared here first, once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/parameters.hpp>
#include <kolo/types.hpp>

namespace kolo::optimizer {

/// "layer0.weight float32 [64, 64]", as it stands in the lists that ranks compare: with the whole name.
std::string describe(std::string_view name, const TensorView& view);

/// Throws `Error` (invalid_argument), beginning with `caller`, for an empty name or one that stands twice.
void check_names(std::string_view caller, const std::vector<std::string_view>& names);
/// The same of a list whose elements have names.
template <class List>
void check_names(std::string_view caller, const List& list) {
  std::vector<std::string_view> names;
  names.reserve(list.size());
  for (const auto& one : list) names.push_back(one.name);
  check_names(caller, names);
}

/// Throws `Error` (invalid_argument), beginning with `caller`, for a gradient of another type or shape than its value.
void check_gradient(std::string_view caller, const Parameter& parameter);

/// Throws `Error` (invalid_argument) unless `root` is one of the context's ranks.
void check_root(std::string_view caller, const Group& group, int root);

}  // namespace kolo::optimizer
