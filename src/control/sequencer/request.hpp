// SPDX-License-Identifier: Apache-2.0
//
// A request, as the sequencer's parts name it: a round of a name, a call of a set's sequence, a set that is to be made,
// or a set's join.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control::sequencer {

/// Identifies a request. Different sets may use the same name, and so may requests that name their members.
using Key = std::tuple<core::SetId, std::vector<std::int32_t>, std::string, bool>;

struct Request {
  core::SetId set = 0;
  std::string name;  ///< kSequence: a call of the set's sequence
  core::Round round = 0;
  std::vector<std::int32_t> members{};  ///< the ranks that make it; empty: the set's members
  bool join = false;                    ///< the set's join, of this number
  [[nodiscard]] Key key() const { return {set, members, name, join}; }
};

template <class Message>
Request request_of(const Message& message) {
  return {message.set, message.name, message.round, message.members};
}

inline bool is_call(const Request& request) { return request.members.empty() && request.name == kSequence; }

}  // namespace kolo::control::sequencer
