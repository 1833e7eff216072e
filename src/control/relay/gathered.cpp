// SPDX-License-Identifier: Apache-2.0
#include "control/relay/gathered.hpp"

#include <utility>

namespace kolo::control::relay {

void merge(std::vector<Declared::Variant>& into, Declared::Variant&& variant) {
  for (Declared::Variant& known : into) {
    if (known.signature != variant.signature) continue;
    const auto middle = static_cast<std::ptrdiff_t>(known.ranks.size());
    known.ranks.insert(known.ranks.end(), variant.ranks.begin(), variant.ranks.end());
    std::inplace_merge(known.ranks.begin(), known.ranks.begin() + middle, known.ranks.end());
    return;
  }
  into.push_back(std::move(variant));
}

void Gathered::gather(std::size_t child, std::size_t children, Declared&& message) {
  if (declared.empty()) declared.resize(children, false);
  if (declared[child]) return;
  declared[child] = true;
  for (Declared::Variant& variant : message.variants) merge(variants, std::move(variant));
}

}  // namespace kolo::control::relay
