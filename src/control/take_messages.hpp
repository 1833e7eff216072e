// SPDX-License-Identifier: Apache-2.0
//
// How a leader empties a rank's message ring without missing a message that comes meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "control/codec.hpp"
#include "control/messages.hpp"

namespace kolo::control {

/// Takes all messages that a rank has posted out of the board, and returns how often its doorbell had rung by then: no
/// message has rung that was not taken, and the counts before those that were have rung. A rank goes on posting
/// meanwhile: so the bell is read behind the last message, and before a look that found none.
/// (`AnyBoard`: Board.)
template <class AnyBoard>
std::uint64_t take_messages(AnyBoard& board, int local_rank, Bytes& scratch, std::deque<UpMessage>& messages) {
  std::uint64_t rung = 0;
  std::size_t before = 0;
  do {
    before = messages.size();
    rung = board.doorbell(local_rank);
    while (board.receive(local_rank, scratch)) {
      messages.push_back(decode_up(ByteView(scratch.data(), scratch.size())));
    }
  } while (messages.size() != before);
  return rung;
}

}  // namespace kolo::control
