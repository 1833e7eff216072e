// SPDX-License-Identifier: Apache-2.0
#include "control/participant/names.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace kolo::control::participant {

using core::SetId;
using core::TensorId;

// ---------------------------------------------------------------- sets

Set& Names::add_set(SetId number, TensorId base, std::uint16_t generation, Members members) {
  Set& set = sets_.try_emplace(number, number).first->second;
  set.base = base;
  set.generation = generation;
  set.member = std::binary_search(members.begin(), members.end(), rank_);
  set.members = std::move(members);
  if (number == core::kGlobalSet) reserve_id(core::kReservedIds - 1);
  return set;
}

// ---------------------------------------------------------------- names

NameId Names::open(Set& set, const std::string& name) {
  const auto [place, is_new] = set.names.try_emplace(name, kNoName);
  if (!is_new) return place->second;
  return place->second = open_unnamed(set, name);
}

NameId Names::open_unnamed(Set& set, const std::string& name) {
  if (free_.empty()) {
    free_.push_back(static_cast<NameId>(names_.size()));
    names_.emplace_back();
  }
  const NameId number = free_.back();
  free_.pop_back();
  Name& named = names_[number] = Name{};
  named.set = &set;
  named.name = name;
  return number;
}

NameId Names::open_request(const Members& members, const std::string& name) {
  const auto [place, is_new] = requests_.try_emplace({members, name}, kNoName);
  KOLO_CHECK(is_new) << "a process set of these members is being made";
  const NameId number = place->second = open_unnamed(set_of(core::kGlobalSet), name);
  names_[number].members = members;
  return number;
}

void Names::forget(NameId number, std::vector<Action>& actions) {
  Name& named = names_[number];
  if (named.is_join) {
    named.set->join = kNoName;
  } else if (named.members.empty()) {
    named.set->names.erase(named.name);
  } else {
    requests_.erase({named.members, named.name});
  }
  named.set = nullptr;
  named.members.clear();
  named.current.reset();
  named.pending.reset();
  free_.push_back(number);
  actions.emplace_back(ForgetName{number});
}

NameId Names::find(const Set& set, const std::string& name) const {
  const auto found = set.names.find(name);
  return found == set.names.end() ? kNoName : found->second;
}

NameId Names::find(const Set& set, const std::string& name, const Members& members) const {
  if (members.empty()) return find(set, name);
  const auto found = requests_.find({members, name});
  return found == requests_.end() ? kNoName : found->second;
}

std::vector<NameId> Names::in_flight_of(const Set& set) const {
  std::vector<NameId> found;
  for (const auto& [name, number] : set.names) {
    if (names_[number].in_flight) found.push_back(number);
  }
  std::sort(found.begin(), found.end(), [this](NameId a, NameId b) { return names_[a].name < names_[b].name; });
  return found;
}

// ---------------------------------------------------------------- ids

void Names::reserve_id(TensorId id) {
  if (id >= name_of_id_.size()) name_of_id_.resize(std::size_t{id} + 1, kNoName);
}

NameId Names::name_in_log(const Set& set, TensorId id) {
  require(is_known(id) && name_of(id) != kNoName && names_[name_of(id)].set == &set,
          "the log runs a tensor that this rank does not know");
  return name_of(id);
}

}  // namespace kolo::control::participant
