// SPDX-License-Identifier: Apache-2.0
//
// The operation of a send or a receive: what a handle of point to point points to, and what a thread sleeps on that
// waits long for one of its own.
#pragma once

#include "data/p2p/message.hpp"
#include "engine/operation.hpp"
#include "engine/set_state.hpp"

namespace kolo::engine {

struct MessageOperation final : Operation {
  p2p::Message own;   ///< of an asynchronous call: what `message` points to
  SetStatePtr set;    ///< likewise: the group
  OperationPtr self;  ///< while it is open; guarded by the lock of the messenger, and the driver's once it is done
};

}  // namespace kolo::engine
