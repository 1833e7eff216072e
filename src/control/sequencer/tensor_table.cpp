// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/tensor_table.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace kolo::control {

using core::kNoTensor;
using core::kReservedIds;
using core::TensorId;

TensorId TensorTable::find(core::SetId set, const std::string& name) const {
  const auto found = names_.find({set, name});
  return found == names_.end() ? kNoTensor : found->second;
}

TensorId TensorTable::free_id() const {
  if (!free_.empty()) return *free_.begin();
  return tensors_.size() < capacity_ ? static_cast<TensorId>(tensors_.size()) : kNoTensor;
}

TensorId TensorTable::least_recently_used() const {
  for (const TensorId id : use_order_) {
    if (!tensors_[id].ready) return id;
  }
  return kNoTensor;
}

void TensorTable::grow(TensorId id) {
  KOLO_CHECK(id < capacity_) << "id " << id << " is beyond the capacity of " << capacity_;
  while (tensors_.size() <= id) {
    free_.insert(static_cast<TensorId>(tensors_.size()));
    tensors_.emplace_back();
  }
}

void TensorTable::assign(TensorId id, core::SetId set, const std::string& name, const core::Signature& signature) {
  grow(id);
  KOLO_CHECK(free_.erase(id) == 1) << "id " << id << " is in use";
  const auto generation = static_cast<std::uint16_t>(tensors_[id].generation + 1);
  Tensor& tensor = tensors_[id] = Tensor{};
  tensor.used = true;
  tensor.generation = generation;
  tensor.set = set;
  tensor.name = name;
  tensor.signature = signature;
  tensor.bytes = signature.bytes();
  tensor.priority = signature.priority;
  tensor.place = use_order_.insert(use_order_.end(), id);
  names_[{set, name}] = id;
}

void TensorTable::change(TensorId id, const core::Signature& signature) {
  Tensor& tensor = (*this)[id];
  ++tensor.generation;
  tensor.signature = signature;
  tensor.bytes = signature.bytes();
  tensor.priority = signature.priority;
  tensor.seen = tensor.seen_before = 0;
}

void TensorTable::release(TensorId id) {
  Tensor& tensor = tensors_[id];
  KOLO_CHECK(tensor.used && !tensor.ready && !tensor.reserved) << "id " << id << " is not idle";
  use_order_.erase(tensor.place);
  names_.erase({tensor.set, tensor.name});
  const std::uint16_t generation = tensor.generation;
  tensor = Tensor{};
  tensor.generation = generation;
  free_.insert(id);
}

void TensorTable::reserve(TensorId id, core::SetId set, std::uint16_t generation) {
  Tensor& tensor = (*this)[id] = Tensor{};
  tensor.used = tensor.reserved = true;
  tensor.generation = generation;
  tensor.set = set;
}

void TensorTable::reserve_for_the_world() {
  grow(kReservedIds - 1);
  for (TensorId id = 0; id < kReservedIds; ++id) {
    KOLO_CHECK(free_.erase(id) == 1) << "id " << id << " is in use";
    reserve(id, core::kGlobalSet, 0);
  }
}

TensorId TensorTable::reserve_row(core::SetId set) {
  if (free_rows_.empty()) {
    if (rows_.size() >= core::kEndOfRows - core::kFirstRow) return kNoTensor;
    free_rows_.insert(core::kFirstRow + static_cast<TensorId>(rows_.size()));
    rows_.resize(rows_.size() + core::kReservedIds);
  }
  const TensorId base = *free_rows_.begin();
  free_rows_.erase(free_rows_.begin());
  const auto generation = static_cast<std::uint16_t>((*this)[base].generation + 1);
  for (TensorId id = base; id < base + core::kReservedIds; ++id) reserve(id, set, generation);
  return base;
}

void TensorTable::release_row(TensorId base) {
  for (TensorId id = base; id < base + core::kReservedIds; ++id) {
    const std::uint16_t generation = (*this)[id].generation;
    (*this)[id] = Tensor{};
    (*this)[id].generation = generation;
  }
  free_rows_.insert(base);
}

std::vector<TensorId> TensorTable::of_set(core::SetId set) const {
  std::vector<TensorId> ids;
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    if (tensors_[id].used && !tensors_[id].reserved && tensors_[id].set == set) ids.push_back(id);
  }
  return ids;
}

}  // namespace kolo::control
