// SPDX-License-Identifier: Apache-2.0
//
// The sets that there are, by number, and what a request is called in front of people. The world is there first, and
// always; what is said of a number that is not there is said of a set that has been removed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/sequencer/set.hpp"

namespace kolo::control::sequencer {

class SetTable {
 public:
  SetTable(TensorTable& tensors, std::int64_t fusion_threshold) : tensors_(tensors), threshold_(fusion_threshold) {}

  /// A new set, under the next number. `members`, which ascend, in the set's order until told otherwise.
  Set& add(core::TensorId base, std::vector<std::int32_t> members);
  void erase(core::SetId set) { sets_.erase(set); }
  [[nodiscard]] core::SetId next_number() const noexcept { return next_; }

  [[nodiscard]] Set& world() { return sets_.begin()->second; }  // the first of them
  /// Null: it has been removed.
  [[nodiscard]] Set* find(core::SetId set) {
    const auto found = sets_.find(set);
    return found == sets_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] Set& at(core::SetId set) { return sets_.at(set); }
  [[nodiscard]] const Set& at(core::SetId set) const { return sets_.at(set); }
  [[nodiscard]] std::map<core::SetId, Set>& all() noexcept { return sets_; }

  /// Those who make it, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& members_of(const Request& request) const;
  /// What people call the set's group; empty for the world's, and for one that has been removed.
  [[nodiscard]] std::string words_of(core::SetId set) const;
  /// What people call the request.
  [[nodiscard]] std::string subject_of(const Request& request) const;

 private:
  TensorTable& tensors_;
  std::int64_t threshold_;
  std::map<core::SetId, Set> sets_;
  core::SetId next_ = core::kGlobalSet;
};

}  // namespace kolo::control::sequencer
