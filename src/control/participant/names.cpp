// SPDX-License-Identifier: Apache-2.0
#include "control/participant/names.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace kolo::control::participant {

using core::SetId;
using core::TensorId;

// ---------------------------------------------------------------- sets

Set& SlotTable::add_set(SetId number, TensorId base, std::uint16_t generation, Members members) {
  Set& set = sets_.try_emplace(number, number).first->second;
  set.base = base;
  set.generation = generation;
  set.member = std::binary_search(members.begin(), members.end(), rank_);
  set.members = std::move(members);
  if (number == core::kGlobalSet) reserve_id(core::kReservedIds - 1);
  return set;
}

Set& SlotTable::set_of(SetId number) {
  const auto found = sets_.find(number);
  KOLO_CHECK(found != sets_.end()) << "process set " << number << " is not known here";
  return found->second;
}

Set& SlotTable::set_in_log(SetId number) {
  const auto found = sets_.find(number);
  require(found != sets_.end(), "there is no such process set");
  return found->second;
}

// ---------------------------------------------------------------- slots

SlotId SlotTable::open(Set& set, const std::string& name) {
  const auto [place, is_new] = set.names.try_emplace(name, kNoSlot);
  if (!is_new) return place->second;
  return place->second = open_unnamed(set, name);
}

SlotId SlotTable::open_unnamed(Set& set, const std::string& name) {
  if (free_.empty()) {
    free_.push_back(static_cast<SlotId>(slots_.size()));
    slots_.emplace_back();
  }
  const SlotId number = free_.back();
  free_.pop_back();
  Slot& slot = slots_[number] = Slot{};
  slot.set = &set;
  slot.name = name;
  return number;
}

SlotId SlotTable::open_request(const Members& members, const std::string& name) {
  const auto [place, is_new] = requests_.try_emplace({members, name}, kNoSlot);
  KOLO_CHECK(is_new) << "a process set of these members is being made";
  const SlotId number = place->second = open_unnamed(set_of(core::kGlobalSet), name);
  slots_[number].members = members;
  return number;
}

void SlotTable::forget(SlotId number, std::vector<Action>& actions) {
  Slot& slot = slots_[number];
  if (slot.is_join) {
    slot.set->join = kNoSlot;
  } else if (slot.members.empty()) {
    slot.set->names.erase(slot.name);
  } else {
    requests_.erase({slot.members, slot.name});
  }
  slot.set = nullptr;
  slot.members.clear();
  slot.current.reset();
  slot.pending.reset();
  free_.push_back(number);
  actions.emplace_back(ForgetSlot{number});
}

SlotId SlotTable::find(const Set& set, const std::string& name) const {
  const auto found = set.names.find(name);
  return found == set.names.end() ? kNoSlot : found->second;
}

SlotId SlotTable::find(const Set& set, const std::string& name, const Members& members) const {
  if (members.empty()) return find(set, name);
  const auto found = requests_.find({members, name});
  return found == requests_.end() ? kNoSlot : found->second;
}

std::vector<SlotId> SlotTable::in_flight_of(const Set& set) const {
  std::vector<SlotId> found;
  for (const auto& [name, number] : set.names) {
    if (slots_[number].in_flight) found.push_back(number);
  }
  std::sort(found.begin(), found.end(), [this](SlotId a, SlotId b) { return slots_[a].name < slots_[b].name; });
  return found;
}

// ---------------------------------------------------------------- ids

void SlotTable::reserve_id(TensorId id) {
  if (id >= slot_of_name_.size()) slot_of_name_.resize(std::size_t{id} + 1, kNoSlot);
}

SlotId SlotTable::slot_in_log(const Set& set, TensorId id) {
  require(is_known(id) && slot_of(id) != kNoSlot && slots_[slot_of(id)].set == &set,
          "the log runs a tensor that this rank does not know");
  return slot_of(id);
}

}  // namespace kolo::control::participant
