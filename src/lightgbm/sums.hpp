// SPDX-License-Identifier: Apache-2.0
//
// The order in which LightGBM's own network adds the ranks' parts of one block: that of its recursive halving, or,
// where the number of ranks is no power of two and the input is long, of its ring (LightGBM, src/network). Sums of
// floats depend on the order, so a model is the same to the last bit only if that is.
#pragma once

#include <cstdint>

namespace kolo::lightgbm {

/// Calls `add(from, to)` for pairs of ranks: the part of rank `from` is added to that of `to`. Returns the rank whose
/// part is the sum afterwards. `owner`: the rank that the block is for. `bytes`: the whole input of a rank.
template <class Add>
int add_in_order(int ranks, int owner, std::int64_t bytes, const Add& add) {
  int groups = 1;
  while (2 * groups <= ranks) groups *= 2;
  constexpr std::int64_t kRing = 10 << 20;
  if (groups != ranks && bytes >= kRing) {
    for (int i = 1; i < ranks; ++i) add((owner + i) % ranks, (owner + i + 1) % ranks);
    return owner;
  }
  // The last ranks are groups of two, so many that the number of groups is a power of two.
  const int alone = 2 * groups - ranks;
  const auto first_of = [alone](int group) { return group < alone ? group : alone + 2 * (group - alone); };
  for (int group = alone; group < groups; ++group) add(first_of(group) + 1, first_of(group));
  for (int half = groups / 2; half > 0; half /= 2) {
    for (int group = 0; group < half; ++group) add(first_of(group + half), first_of(group));
  }
  return first_of(0);
}

}  // namespace kolo::lightgbm
