// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/set_table.hpp"

#include <utility>

#include "control/sentences.hpp"

namespace kolo::control::sequencer {

Set& SetTable::add(core::TensorId base, std::vector<std::int32_t> members) {
  const core::SetId number = next_++;
  Set& set = sets_.try_emplace(number, number, tensors_, threshold_).first->second;
  set.base = base;
  set.order = set.members = std::move(members);
  return set;
}

const std::vector<std::int32_t>& SetTable::members_of(const Request& request) const {
  return request.members.empty() ? sets_.at(request.set).members : request.members;
}

std::string SetTable::words_of(core::SetId set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() ? std::string() : found->second.words;
}

std::string SetTable::subject_of(const Request& request) const {
  const std::string group = words_of(request.set);
  return request.join ? join_of(group) : subject(group, request.name, request.round, request.members);
}

}  // namespace kolo::control::sequencer
