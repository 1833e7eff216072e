// SPDX-License-Identifier: Apache-2.0
//
// The operation of a send or a receive. A message's handle points to it, and a thread that waits long for its own
// message sleeps on it.
#pragma once

#include <memory>

#include "data/device.hpp"
#include "data/p2p/message.hpp"
#include "engine/operation.hpp"
#include "engine/set_state.hpp"

namespace kolo::engine {

struct MessageOperation final : Operation {
  p2p::Message own;   ///< of an asynchronous call: what `message` points to
  SetStatePtr set;    ///< likewise: the group
  OperationPtr self;  ///< while it is open; guarded by the lock of the messenger, and the driver's once it is done
  /// The other half of a `sendrecv`, which outlives this one's end; null: there is none. If one fails because a rank
  /// has left, the other is given up: its peer may wait for that rank, too. Constant once both are open.
  MessageOperation* half = nullptr;

  // -- where the tensor lies on a device (device_messages.hpp)
  std::unique_ptr<std::byte[]> host;  ///< the message's memory; null: the tensor's own, of the CPU
  data::DeviceCopy copy;              ///< between the two; the driver's, from when it begins
  bool is_copying = false;            ///< it has begun, and is not over; the driver's
  bool has_ended = false;             ///< the message has; the driver's
  /// Of a message that has ended well: whether its data must still be copied into the tensor.
  [[nodiscard]] bool lacks_data() const noexcept {
    return host != nullptr && message->role == p2p::Message::Role::receive && message->received_bytes > 0;
  }
};

}  // namespace kolo::engine
