// SPDX-License-Identifier: Apache-2.0
//
// The ranks that have left the job, as far as messages must know.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/clock.hpp"

namespace kolo::p2p {

struct Departures {
  std::map<int, base::Time> until;  ///< until when something may come from ranks that have left
  std::map<int, int> because;       ///< the first cause of those that have left because of another rank's end
  std::vector<int> order;           ///< the ranks that have left, the earliest first

  [[nodiscard]] bool has(int rank) const { return until.count(rank) > 0; }
  /// The rank itself, unless it has left because of another one.
  [[nodiscard]] int cause_of(int rank) const {
    const auto found = because.find(rank);
    return found == because.end() ? rank : found->second;
  }
  /// The one of these ranks that left before the others; null: of all. -1: none has left.
  [[nodiscard]] int first_of(const std::vector<int>* members) const {
    const auto found = std::find_if(order.begin(), order.end(), [members](int rank) {
      return members == nullptr || std::find(members->begin(), members->end(), rank) != members->end();
    });
    return found == order.end() ? -1 : *found;
  }
};

}  // namespace kolo::p2p
