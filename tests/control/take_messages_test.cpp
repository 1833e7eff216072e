// SPDX-License-Identifier: Apache-2.0
#include "control/leader.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>

namespace kolo::control {
namespace {

/// A rank's messages on the board, of which more are posted right behind looks that find none.
struct Posting {
  void post() {
    Bytes bytes;
    encode(UpMessage(Departed{0}), bytes);
    posted.push_back(bytes);
    ++rung;
  }
  [[nodiscard]] std::uint64_t doorbell(int) const { return rung; }
  bool receive(int, Bytes& message) {
    if (posted.empty()) {
      if (still_to_come > 0) {
        --still_to_come;
        post();
      }
      return false;
    }
    message = posted.front();
    posted.pop_front();
    return true;
  }

  std::deque<Bytes> posted;
  std::uint64_t rung = 0;
  int still_to_come = 0;
};

/// Else the leader would take the bell for heard, and sleep beside the message.
TEST(TakeMessages, TakesEachThatHasRung) {
  for (const int late : {0, 1, 2, 5}) {
    Posting rank;
    rank.post();
    rank.still_to_come = late;
    Bytes scratch;
    std::deque<UpMessage> taken;
    const std::uint64_t rung = take_messages(rank, 0, scratch, taken);
    EXPECT_EQ(rung, taken.size()) << late << " late";
  }
}

}  // namespace
}  // namespace kolo::control
