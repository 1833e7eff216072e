// SPDX-License-Identifier: Apache-2.0
#include "control/relay/table.hpp"

#include <algorithm>
#include <iterator>

namespace kolo::control::relay {

using core::kNoTensor;
using core::Round;
using core::SetId;
using core::TensorId;

// ---------------------------------------------------------------- children

std::vector<std::int32_t> Table::below_child(const std::vector<std::int32_t>& members, std::size_t child) const {
  std::vector<std::int32_t> common;
  std::set_intersection(members.begin(), members.end(), below_[child].begin(), below_[child].end(),
                        std::back_inserter(common));
  return common;
}

std::vector<std::size_t> Table::children_with(const std::vector<std::int32_t>& members) const {
  std::vector<std::size_t> children;
  for (std::size_t child = 0; child < below_.size(); ++child) {
    if (!below_child(members, child).empty()) children.push_back(child);
  }
  return children;
}

// ---------------------------------------------------------------- sets

Set& Table::add_set(SetId number, TensorId base, std::uint16_t generation, std::vector<std::int32_t> members) {
  Set& set = sets_[number];
  set.number = number;
  set.base = base;
  set.children = set.speakers = children_with(members);
  set.members = std::move(members);
  for (TensorId id = base; id < base + core::kReservedIds; ++id) begin(id, set, "", generation, 0);
  find(base + core::kCompleted)->completions = true;
  find(base + core::kCompleted)->speakers = &set.children;
  if (number != core::kGlobalSet) find(base + core::kDropped)->speakers = &set.children;
  return set;
}

void Table::remove_set(SetId number) {
  const TensorId base = set_of(number).base;
  for (TensorId id = base; id < base + core::kReservedIds; ++id) *find(id) = Tensor{};
  auto name = names_.lower_bound(Key(number, ""));
  for (; name != names_.end() && name->first.first == number; name = names_.erase(name)) {
    *find(name->second) = Tensor{};
  }
  sets_.erase(number);
}

// ---------------------------------------------------------------- ids

void Table::begin(TensorId id, Set& set, const std::string& name, std::uint16_t generation, Round submitted) {
  Ids& ids = id < core::kFirstRow ? names_ids_ : rows_;
  const std::size_t place = place_of(id);
  if (place >= ids.tensors.size()) {
    ids.tensors.resize(place + 1);
    ids.reached.resize(ids.tensors.size() * below_.size());
  }
  Tensor& tensor = ids.tensors[place];
  tensor = Tensor{};
  tensor.set = &set;
  tensor.speakers = &set.speakers;
  tensor.name = name;
  tensor.generation = generation;
  tensor.forwarded = submitted;
  std::fill_n(row(id), below_.size(), submitted);
}

void Table::assign(TensorId id, Set& set, const std::string& name, std::uint16_t generation, Round submitted) {
  begin(id, set, name, generation, submitted);
  names_[Key(set.number, name)] = id;
}

void Table::evict(TensorId id) {
  Tensor& tensor = *find(id);
  names_.erase(Key(tensor.set->number, tensor.name));
  tensor = Tensor{};
}

TensorId Table::id_of(SetId set, const std::string& name) const {
  const auto found = names_.find(Key(set, name));
  return found == names_.end() ? kNoTensor : found->second;
}

std::vector<TensorId> Table::ids_of(const Set& set) const {
  std::vector<TensorId> ids{set.base + core::kSteps};
  for (auto name = names_.lower_bound(Key(set.number, "")); name != names_.end() && name->first.first == set.number;
       ++name) {
    ids.push_back(name->second);
  }
  return ids;
}

}  // namespace kolo::control::relay
