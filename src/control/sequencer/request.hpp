// SPDX-License-Identifier: Apache-2.0
//
// Requests, as the sequencer's parts keep records of them.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control::sequencer {

/// A request without its round. Different sets may use the same name, and so may requests that name their members.
using Key = std::tuple<core::SetId, std::vector<std::int32_t>, std::string, bool>;

inline Key key_of(const Request& request) { return {request.set, request.members, request.name, request.join}; }
inline Request request_of(const Declared& message) {
  return {message.set, message.name, message.round, message.members};
}

}  // namespace kolo::control::sequencer
