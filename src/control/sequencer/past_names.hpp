// SPDX-License-Identifier: Apache-2.0
//
// The outcome of names of one set that have lost their id, or failed before they had one. A rank that joins lists what
// it had in flight as of the last entry that it had read. This class tells what the log has run or failed since. Plain
// data.
//
// A name is forgotten when every member has read of it: when all have completed more batches than there were before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>

#include "control/messages.hpp"

namespace kolo::control::sequencer {

class PastNames {
 public:
  /// Records the last round of the name that was run or failed, by entry `entry` of the log (from 1). `appended`:
  /// batches of the set before that entry; `completed`: batches that every member has completed.
  void note(const std::string& name, core::Round round, std::uint64_t entry, std::uint64_t appended,
            std::uint64_t completed) {
    while (!names_.empty() && names_.front().batches < completed) names_.pop_front();
    names_.push_back({name, round, entry, appended});
  }
  /// The last failure of a name makes earlier ones redundant.
  void forget_until(const std::string& name, core::Round round) {
    const auto is_older = [&](const Name& one) { return one.name == name && one.round <= round; };
    names_.erase(std::remove_if(names_.begin(), names_.end(), is_older), names_.end());
  }
  /// Whether the log has run or failed this round after its entry `read`.
  [[nodiscard]] bool is_over(const std::string& name, core::Round round, std::uint64_t read) const {
    return std::any_of(names_.begin(), names_.end(),
                       [&](const Name& one) { return one.entry > read && one.name == name && one.round >= round; });
  }

 private:
  struct Name {
    std::string name;
    core::Round round = 0;
    std::uint64_t entry = 0;
    std::uint64_t batches = 0;
  };
  std::deque<Name> names_;  ///< by entry
};

}  // namespace kolo::control::sequencer
