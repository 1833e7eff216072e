// SPDX-License-Identifier: Apache-2.0
//
// The calls of include/kolo/point_to_point.hpp: each checks its arguments, and gives a message to the engine.
#include <kolo/point_to_point.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "api/access.hpp"
#include "api/checks.hpp"
#include "api/context_impl.hpp"
#include "api/submit.hpp"
#include "data/device.hpp"
#include "data/p2p/message.hpp"
#include "engine/messages.hpp"

namespace kolo {
namespace {

using api::refuse;
using p2p::Message;

void check_rank(const char* call, const char* which, int rank, const engine::SetState& set, const char* or_else) {
  if (rank >= 0 && rank < set.topology.size) return;
  refuse(call, std::string(which) + " is rank " + std::to_string(rank) +
                   (set.number == core::kGlobalSet ? ", but there are " : ", but the group has ") +
                   std::to_string(set.topology.size) + (set.topology.size == 1 ? " rank" : " ranks") +
                   "; give one from 0 to " + std::to_string(set.topology.size - 1) + or_else);
}

/// The backend of a tensor's device, which this rank must be able to use.
data::DeviceBackend& checked_backend(const char* call, const engine::Engine& engine, Device device) {
  try {
    data::DeviceBackend& backend = api::device_of(engine);
    backend.check_usable(device);
    return backend;
  } catch (const Error& error) {
    refuse(call, "its tensor lies on " + to_string(device) + ", but " + error.status().message(), error.code());
  }
}

/// The parts of a message that sends and receives have in common.
Message message_of(Message::Role role, const engine::SetState& set, const ConstTensorView& tensor, int peer, int tag) {
  Message message;
  message.role = role;
  message.dtype = tensor.dtype();
  message.tag = tag;
  message.peer = peer == any_rank ? p2p::kAny : set.members[static_cast<std::size_t>(peer)];
  message.set = set.serial;
  message.data = const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data()));
  message.tensor = message.data;
  message.bytes = static_cast<std::uint64_t>(tensor.bytes());
  if (set.number != core::kGlobalSet) {
    message.members = &set.members;
    message.group = &set.words;
  }
  return message;
}

Message send_of(const char* call, const engine::SetState& set, const detail::Transfer& transfer) {
  const ConstTensorView& tensor = *transfer.sent;
  const int tag = transfer.send_tag;
  api::check_view(call, "tensor", tensor);
  check_rank(call, "to", transfer.to, set, "");
  if (tag < 0) refuse(call, "its tag is " + std::to_string(tag) + "; give one that is not negative");
  api::check_timeout(call, transfer.timeout);
  return message_of(Message::Role::send, set, tensor, transfer.to, tag);
}

Message receive_of(const char* call, const engine::SetState& set, const detail::Transfer& transfer) {
  const TensorView& tensor = *transfer.received;
  const int from = transfer.from, tag = transfer.recv_tag;
  api::check_view(call, "tensor", tensor);
  const bool on_device = tensor.device().kind != DeviceKind::cpu;
  if (on_device && from == any_rank) {
    refuse(call,
           "it receives into " + to_string(tensor.device()) +
               " from any rank, which is for memory of the CPU alone; name the rank that sends",
           ErrorCode::unsupported);
  }
  if (from != any_rank) check_rank(call, "from", from, set, on_device ? "" : ", or any_rank");
  if (tag < 0 && tag != any_tag) {
    refuse(call, "its tag is " + std::to_string(tag) + "; give one that is not negative, or any_tag");
  }
  api::check_timeout(call, transfer.timeout);
  return message_of(Message::Role::receive, set, tensor, from, tag);
}

/// Refuses a send and a receive whose tensors overlap.
void check_apart(const Message& send, const Message& receive) {
  const auto begins_in = [](const Message& one, const Message& other) {
    return one.bytes > 0 && one.tensor >= other.tensor && one.tensor < other.tensor + other.bytes;
  };
  if (!begins_in(send, receive) && !begins_in(receive, send)) return;
  refuse("sendrecv", "the tensor that it sends and the one that it receives into overlap; give it two");
}

std::unique_ptr<std::byte[]> host_memory(const char* call, std::uint64_t bytes) {
  try {
    return std::make_unique_for_overwrite<std::byte[]>(bytes);
  } catch (const std::bad_alloc&) {
    refuse(call, "no memory of the host for its " + std::to_string(bytes) + " bytes, through which they go",
           ErrorCode::out_of_memory);
  }
}

/// The operation of a message. For a device's tensor its data is in memory of the host.
std::shared_ptr<engine::MessageOperation> operation_of(const char* call, const detail::GroupParts& parts,
                                                       Message message, const ConstTensorView& tensor) {
  auto operation = std::make_shared<engine::MessageOperation>();
  operation->own = std::move(message);
  operation->message = &operation->own;
  operation->message_device = tensor.device().kind;
  operation->set = parts.set.shared_from_this();
  Message& own = operation->own;
  if (tensor.device().kind == DeviceKind::cpu) return operation;
  data::DeviceBackend& backend = checked_backend(call, parts.engine, tensor.device());
  if (own.bytes == 0) return operation;
  const bool sends = own.role == Message::Role::send;
  operation->host = host_memory(call, own.bytes);
  own.data = operation->host.get();
  own.is_late = sends;
  own.on_device = backend.passes_messages();
  data::DeviceCopy& copy = operation->copy;
  copy.direction = sends ? data::DeviceCopy::Direction::to_host : data::DeviceCopy::Direction::to_device;
  copy.on_device = const_cast<std::byte*>(own.tensor);
  copy.on_host = own.data;
  copy.bytes = own.bytes;
  if (tensor.stream()) copy.ready = backend.record(tensor.device(), *tensor.stream());
  return operation;
}

/// Sends or receives, and waits; the message then has its outcome.
void transfer_one(const char* call, const detail::GroupParts& parts, Message& message, const ConstTensorView& tensor,
                  const std::optional<std::chrono::nanoseconds>& timeout) {
  if (tensor.device().kind == DeviceKind::cpu) {
    Message* const one = &message;
    parts.engine.messages().transfer(Span<Message* const>(&one, 1), timeout);
    if (!message.status.ok()) throw Error(message.status);
    return;
  }
  const auto operation = operation_of(call, parts, message, tensor);
  parts.engine.messages().transfer(Span<const std::shared_ptr<engine::MessageOperation>>(&operation, 1), timeout);
  if (operation->failed()) throw Error(operation->outcome());
  message = operation->own;
}

std::shared_ptr<detail::HandleState> submit(const char* call, const detail::GroupParts& parts, Message message,
                                            const ConstTensorView& tensor,
                                            const std::optional<std::chrono::nanoseconds>& timeout) {
  if (message.role == Message::Role::send && tensor.device().kind == DeviceKind::cpu) {
    if (auto sent = parts.engine.messages().try_send(message)) return sent;
  }
  auto operation = operation_of(call, parts, std::move(message), tensor);
  parts.engine.messages().submit(operation, timeout);
  return operation;
}

Received received(const Message& message) {
  int source = message.source;
  if (message.members != nullptr) {
    source = static_cast<int>(std::find(message.members->begin(), message.members->end(), source) -
                              message.members->begin());
  }
  return {source, message.received_tag, static_cast<std::int64_t>(message.received_bytes / size_of(message.dtype))};
}

/// One message in each direction.
Received send_and_receive(const detail::GroupParts& parts, const detail::Transfer& both) {
  constexpr const char* kSending = "sendrecv, sending";
  constexpr const char* kReceiving = "sendrecv, receiving";
  Message send = send_of(kSending, parts.set, both);
  Message receive = receive_of(kReceiving, parts.set, both);
  check_apart(send, receive);
  if (both.sent->device().kind == DeviceKind::cpu && both.received->device().kind == DeviceKind::cpu) {
    const std::array<Message*, 2> messages{&receive, &send};
    parts.engine.messages().transfer(Span<Message* const>(messages.data(), messages.size()), both.timeout);
    for (const Message* message : messages) {
      if (!message->status.ok()) throw Error(message->status);
    }
    return received(receive);
  }
  // Both are checked before either begins.
  const std::array<std::shared_ptr<engine::MessageOperation>, 2> operations{
      operation_of(kReceiving, parts, std::move(receive), *both.received),
      operation_of(kSending, parts, std::move(send), *both.sent)};
  parts.engine.messages().transfer(
      Span<const std::shared_ptr<engine::MessageOperation>>(operations.data(), operations.size()), both.timeout);
  for (const auto& operation : operations) {
    if (operation->failed()) throw Error(operation->outcome());
  }
  return received(operations.front()->own);
}

}  // namespace

Received detail::run(const Group& group, const Transfer& transfer) {
  const GroupParts parts = api::parts_of(group);
  if (transfer.received == nullptr) {
    Message message = send_of("send", parts.set, transfer);
    transfer_one("send", parts, message, *transfer.sent, transfer.timeout);
    return {};
  }
  if (transfer.sent != nullptr) return send_and_receive(parts, transfer);
  Message message = receive_of("recv", parts.set, transfer);
  transfer_one("recv", parts, message, *transfer.received, transfer.timeout);
  return received(message);
}

Handle detail::start(const Group& group, const Transfer& transfer) {
  const GroupParts parts = api::parts_of(group);
  if (transfer.sent != nullptr) {
    return Handle(
        submit("send_async", parts, send_of("send_async", parts.set, transfer), *transfer.sent, transfer.timeout));
  }
  return Handle(
      submit("recv_async", parts, receive_of("recv_async", parts.set, transfer), *transfer.received, transfer.timeout));
}

Received Future<Received>::get() {
  wait();
  return api::received(detail::HandleAccess::state(*this));
}

Received api::received(const detail::HandleState& receive) { return kolo::received(*receive.message); }

bool Future<Received>::cancel() {
  detail::HandleState& receive = detail::HandleAccess::state(*this);
  const std::shared_ptr<engine::Engine> engine = receive.engine.lock();
  return engine != nullptr && engine->messages().cancel(receive);
}

}  // namespace kolo
