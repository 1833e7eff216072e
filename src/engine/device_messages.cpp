// SPDX-License-Identifier: Apache-2.0
#include "engine/device_messages.hpp"

namespace kolo::engine {

void DeviceMessages::begin(MessageOperation& operation) {
  operation.is_copying = true;
  copying_.push_back(&operation);
  has_fresh_ = true;
  operation.copy.cookie = &operation;
  device_->start(operation.copy);
  open_.store(copying_.size(), std::memory_order_release);
}

void DeviceMessages::forget(MessageOperation& operation) {
  operation.is_copying = false;
  copying_.erase(std::find(copying_.begin(), copying_.end(), &operation));
  open_.store(copying_.size(), std::memory_order_release);
}

bool DeviceMessages::keeps(MessageOperation& operation, bool may_be_used) {
  operation.has_ended = true;
  if (!may_be_used) return operation.is_copying;
  if (operation.message->status.ok() && operation.lacks_data()) {
    operation.copy.bytes = operation.message->received_bytes;
    begin(operation);
  } else if (operation.is_copying) {
    device_->stop(operation.copy);
    if (operation.copy.over) forget(operation);
  }
  return operation.is_copying;
}

std::vector<MessageOperation*> DeviceMessages::take() {
  std::vector<MessageOperation*> ended;
  for (MessageOperation* operation : std::exchange(copying_, {})) {
    operation->is_copying = false;
    if (operation->has_ended) ended.push_back(operation);
  }
  open_.store(0, std::memory_order_release);
  return ended;
}

bool DeviceMessages::uses(const std::byte* begin, std::size_t bytes) const noexcept {
  return std::any_of(copying_.begin(), copying_.end(), [&](const MessageOperation* operation) {
    const std::byte* tensor = operation->copy.on_device;
    return tensor >= begin && tensor < begin + bytes;
  });
}

}  // namespace kolo::engine
