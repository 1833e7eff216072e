// SPDX-License-Identifier: Apache-2.0
//
// The sets that there are, by number, and what a request is called in front of people. The world is there first, and
// always; what is said of a number that is not there is said of a set that has been removed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/sentences.hpp"
#include "control/sequencer/set.hpp"

namespace kolo::control::sequencer {

class SetTable {
 public:
  SetTable(TensorTable& tensors, std::int64_t fusion_threshold) : tensors_(tensors), threshold_(fusion_threshold) {}

  /// A new set, under the next number. `members`, which ascend, in the set's order until told otherwise.
  Set& add(core::TensorId base, std::vector<std::int32_t> members) {
    const core::SetId number = next_++;
    Set& set = sets_.try_emplace(number, number, tensors_, threshold_).first->second;
    set.base = base;
    set.order = set.members = std::move(members);
    return set;
  }
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
  [[nodiscard]] const std::vector<std::int32_t>& members_of(const Request& request) const {
    return request.members.empty() ? sets_.at(request.set).members : request.members;
  }
  /// What people call the set's group; empty for the world's, and for one that has been removed.
  [[nodiscard]] std::string words_of(core::SetId set) const {
    const auto found = sets_.find(set);
    return found == sets_.end() ? std::string() : found->second.words;
  }
  /// What people call the request.
  [[nodiscard]] std::string subject_of(const Request& request) const {
    const std::string group = words_of(request.set);
    return request.join ? join_of(group) : subject(group, request.name, request.round, request.members);
  }

 private:
  TensorTable& tensors_;
  std::int64_t threshold_;
  std::map<core::SetId, Set> sets_;
  core::SetId next_ = core::kGlobalSet;
};

}  // namespace kolo::control::sequencer
