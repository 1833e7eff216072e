// SPDX-License-Identifier: Apache-2.0
#include "engine/left_calls.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace kolo::engine {

using core::CollectiveKind;

void LeftCalls::add(core::Round number, const ExpressCall& call, const std::byte* data,
                    std::optional<std::chrono::nanoseconds> timeout) {
  if (calls_.empty()) calls_.resize(control::Express::kAhead);
  Call& left = at(number);
  left.kind = call.kind;
  left.dtype = call.dtype;
  left.shape = call.shape;
  left.op = call.op;
  left.prescale = call.prescale;
  left.postscale = call.postscale;
  left.root = call.root;
  left.elements = call.buffer.elements;
  left.room_elements = call.room_elements;
  left.data = data;
  left.splits.assign(call.splits.begin(), call.splits.end());
  left.timeout = timeout;
  left.is_told = false;
}

std::size_t LeftCalls::bytes(core::Round number) const noexcept {
  return static_cast<std::size_t>(at(number).elements) * size_of(at(number).dtype);
}

OperationPtr LeftCalls::make_operation(core::Round number, const core::Topology& set) const {
  struct WithMemory {
    Operation operation;
    std::vector<std::byte> input;
    std::vector<std::byte> output;
  };
  const Call& left = at(number);
  const std::size_t element = size_of(left.dtype);
  const auto one = std::make_shared<WithMemory>();
  one->input.resize(static_cast<std::size_t>(left.elements) * element);
  if (left.data != nullptr && !one->input.empty()) std::memcpy(one->input.data(), left.data, one->input.size());
  Operation& operation = one->operation;
  auto signature = std::make_shared<core::Signature>();
  signature->kind = left.kind;
  signature->op = left.op;
  signature->prescale = left.prescale;
  signature->postscale = left.postscale;
  signature->root = left.root;
  signature->tensors.push_back({left.dtype, left.shape});
  operation.signature = std::move(signature);
  operation.timeout = left.timeout;
  operation.call = number;
  operation.splits = left.splits;
  detail::ResultRoom& room = operation.room;
  room.row = left.shape;
  room.row_bytes = left.shape.elements() * static_cast<std::int64_t>(element);
  room.rank = set.rank;
  room.output_elements = left.room_elements;
  room.is_wanted = left.kind != CollectiveKind::gather;
  Buffer buffer{one->input.data(), nullptr, left.elements};
  switch (left.kind) {
  case CollectiveKind::broadcast:
    buffer.output = one->input.data();
    break;
  case CollectiveKind::scatter:
    one->output.resize(static_cast<std::size_t>(left.room_elements) * element);
    if (left.root != set.rank) buffer.input = nullptr;
    buffer.output = one->output.data();
    break;
  case CollectiveKind::reduce:
    one->output.resize(one->input.size());
    buffer.output = one->output.data();
    break;
  default:
    break;
  }
  operation.buffers.push_back(buffer);
  return OperationPtr(one, &operation);
}

void LeftCalls::note_failure(const Status& status) {
  const base::MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
  has_failed_.store(true, std::memory_order_release);
}

Status LeftCalls::take_failure() {
  if (!has_failed_.load(std::memory_order_acquire)) return {};
  const base::MutexLock lock(mutex_);
  has_failed_.store(false, std::memory_order_relaxed);
  return std::exchange(failure_, Status());
}

void LeftCalls::throw_failure() {
  const Status failure = take_failure();
  if (failure.ok()) return;
  throw Error(failure.code(), "this call is done; an earlier one that had returned already has failed since: " +
                                  std::string(failure.message()));
}

}  // namespace kolo::engine
