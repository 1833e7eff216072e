// SPDX-License-Identifier: Apache-2.0
//
// The ranks that have left the job, as far as messages must know.
#pragma once

#include <map>

#include "base/clock.hpp"

namespace kolo::p2p {

struct Departures {
  std::map<int, base::Time> until;  ///< until when something may come from ranks that have left
  std::map<int, int> because;       ///< the first cause of those that have left because of another rank's end
  int first = -1;                   ///< that has left before all others

  [[nodiscard]] bool has(int rank) const { return until.count(rank) > 0; }
  /// The rank itself, unless it has left because of another one.
  [[nodiscard]] int cause_of(int rank) const {
    const auto found = because.find(rank);
    return found == because.end() ? rank : found->second;
  }
};

}  // namespace kolo::p2p
