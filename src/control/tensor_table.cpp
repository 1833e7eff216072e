// SPDX-License-Identifier: Apache-2.0
#include "control/tensor_table.hpp"

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

bool TensorTable::is_current(TensorId id, std::uint16_t generation) const {
  return id < tensors_.size() && tensors_[id].used && tensors_[id].generation == generation;
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

TensorId TensorTable::free_row() const {
  const auto fits = [this](TensorId id) {
    if (id >= tensors_.size()) return true;
    const Tensor& tensor = tensors_[id];
    return !tensor.used || (!tensor.reserved && !tensor.ready);
  };
  const auto is_free = [this](TensorId id) { return id >= tensors_.size() || !tensors_[id].used; };
  TensorId candidate = kNoTensor;
  for (TensorId base = 0; std::uint64_t{base} + kReservedIds <= capacity_; ++base) {
    if (is_free(base) && is_free(base + 1) && is_free(base + 2)) return base;
    if (candidate == kNoTensor && fits(base) && fits(base + 1) && fits(base + 2)) candidate = base;
  }
  return candidate;
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
  tensor.place = use_order_.insert(use_order_.end(), id);
  names_[{set, name}] = id;
}

void TensorTable::change(TensorId id, const core::Signature& signature) {
  Tensor& tensor = tensors_[id];
  ++tensor.generation;
  tensor.signature = signature;
  tensor.bytes = signature.bytes();
  tensor.seen = tensor.seen_before = 0;
}

void TensorTable::release(TensorId id) {
  Tensor& tensor = tensors_[id];
  KOLO_CHECK(tensor.used && !tensor.ready) << "id " << id << " is not idle";
  if (!tensor.reserved) use_order_.erase(tensor.place);
  names_.erase({tensor.set, tensor.name});
  const std::uint16_t generation = tensor.generation;
  tensor = Tensor{};
  tensor.generation = generation;
  free_.insert(id);
}

std::uint16_t TensorTable::reserve(TensorId base, core::SetId set) {
  grow(base + kReservedIds - 1);
  std::uint16_t generation = 0;
  // The global set is the first, and everybody knows that its generation is 0.
  for (TensorId id = base; set != core::kGlobalSet && id < base + kReservedIds; ++id) {
    generation = std::max(generation, static_cast<std::uint16_t>(tensors_[id].generation + 1));
  }
  for (TensorId id = base; id < base + kReservedIds; ++id) {
    KOLO_CHECK(free_.erase(id) == 1) << "id " << id << " is in use";
    Tensor& tensor = tensors_[id] = Tensor{};
    tensor.used = tensor.reserved = true;
    tensor.generation = generation;
    tensor.set = set;
  }
  names_[{set, std::string()}] = base + core::kUnnamed;
  return generation;
}

void TensorTable::touch(TensorId id) {
  Tensor& tensor = tensors_[id];
  if (!tensor.reserved) use_order_.splice(use_order_.end(), use_order_, tensor.place);
}

std::vector<TensorId> TensorTable::of_set(core::SetId set) const {
  std::vector<TensorId> ids;
  for (TensorId id = 0; id < tensors_.size(); ++id) {
    if (tensors_[id].used && tensors_[id].set == set) ids.push_back(id);
  }
  return ids;
}

}  // namespace kolo::control
