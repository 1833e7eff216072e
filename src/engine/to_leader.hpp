// SPDX-License-Identifier: Apache-2.0
//
// Messages of this rank to its leader, in order. Those that the board's ring has no space for wait here.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "control/board.hpp"
#include "control/codec.hpp"
#include "control/messages.hpp"

namespace kolo::engine {

/// One thread at a time (the engine's driver).
class ToLeader {
 public:
  [[nodiscard]] bool empty() const noexcept { return messages_.empty(); }
  /// Whole or, where there is no memory, not at all.
  void add(const control::UpMessage& message) {
    control::Bytes bytes;
    control::encode(message, bytes);
    messages_.push_back(std::move(bytes));
  }
  /// Posts what the ring has space for; how many messages that was.
  std::size_t post(control::Board& board) {
    std::size_t posted = 0;
    while (!messages_.empty() && board.post(control::ByteView(messages_.front().data(), messages_.front().size()))) {
      messages_.pop_front();
      ++posted;
    }
    return posted;
  }

 private:
  std::deque<control::Bytes> messages_;
};

}  // namespace kolo::engine
