// SPDX-License-Identifier: Apache-2.0
//
// The declarations of one round of a name by a relay's children. Equal signatures are merged, each with its ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control::relay {

/// Merges the variant with an equal one, or adds it. Ranks ascend.
void merge(std::vector<Declared::Variant>& into, Declared::Variant&& variant);

struct Gathered {
  core::Round round = 0;
  std::vector<bool> declared;  ///< by child
  std::vector<Declared::Variant> variants;
  bool sent = false;

  /// This child (of `children`) has declared it.
  void gather(std::size_t child, std::size_t children, Declared&& message);
  /// Whether these children, at least one, have declared it.
  [[nodiscard]] bool holds(const std::vector<std::size_t>& speakers) const {
    return !speakers.empty() && std::all_of(speakers.begin(), speakers.end(), [this](auto c) { return declared[c]; });
  }
};

}  // namespace kolo::control::relay
