// SPDX-License-Identifier: Apache-2.0
//
// The declarations of one round of a name by a relay's children. Equal signatures are merged, each with its ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "control/messages.hpp"
#include "control/relay/last_heard.hpp"

namespace kolo::control::relay {

/// Merges the variant with an equal one, or adds it. Ranks ascend.
inline void merge(std::vector<Declared::Variant>& into, Declared::Variant&& variant) {
  for (Declared::Variant& known : into) {
    if (known.signature != variant.signature) continue;
    const auto middle = static_cast<std::ptrdiff_t>(known.ranks.size());
    known.ranks.insert(known.ranks.end(), variant.ranks.begin(), variant.ranks.end());
    std::inplace_merge(known.ranks.begin(), known.ranks.begin() + middle, known.ranks.end());
    return;
  }
  into.push_back(std::move(variant));
}

struct Gathered {
  core::Round round = 0;
  std::vector<bool> declared;  ///< by child
  std::vector<Declared::Variant> variants;
  LastHeard last;  ///< of a request without an id
  bool sent = false;

  /// This child (of `children`) has declared it.
  void gather(std::size_t child, std::size_t children, Declared&& message) {
    if (declared.empty()) declared.resize(children, false);
    if (declared[child]) return;
    declared[child] = true;
    for (Declared::Variant& variant : message.variants) merge(variants, std::move(variant));
  }
  /// Whether these children, at least one, have declared it.
  [[nodiscard]] bool holds(const std::vector<std::size_t>& speakers) const {
    return !speakers.empty() && std::all_of(speakers.begin(), speakers.end(), [this](auto c) { return declared[c]; });
  }
};

}  // namespace kolo::control::relay
