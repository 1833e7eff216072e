// SPDX-License-Identifier: Apache-2.0
//
// The messages of one rank that are open: their deadlines, whom the oldest waits for, and how each ends. One thread at a
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "data/p2p/channels.hpp"
#include "data/p2p/message.hpp"

namespace kolo::p2p {

/// Of messages that have ended well.
struct MessageCounters {
  std::uint64_t sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t received = 0;
  std::uint64_t bytes_received = 0;
};

class OpenMessages {
 public:
  /// `channels` outlives it.
  explicit OpenMessages(Channels& channels) noexcept : channels_(channels) {}

  [[nodiscard]] const std::vector<Message*>& all() const noexcept { return open_; }
  [[nodiscard]] auto begin() const noexcept { return open_.begin(); }
  [[nodiscard]] auto end() const noexcept { return open_.end(); }
  [[nodiscard]] bool empty() const noexcept { return open_.empty(); }
  void add(Message& message);
  void end(Message& message, const Status& status = {});
  /// A message has ended that was never open.
  void note_sent(const Message& send) noexcept;

  /// Those that are done since the last call, and have an owner.
  [[nodiscard]] std::vector<Message*>& done() noexcept { return done_; }
  [[nodiscard]] const MessageCounters& counters() const noexcept { return counters_; }

  /// When deadlines and warnings must be looked at; possibly too early.
  [[nodiscard]] base::Time next_due() const noexcept { return next_due_; }
  void due_at(base::Time time) noexcept { next_due_ = std::min(next_due_, time); }
  /// An open message has got a deadline, and a time to warn.
  void note_deadline(const Message& message) noexcept { due_at(std::min(message.deadline, message.warn_at)); }
  /// All are looked at now, and each says anew when it is due.
  void forget_due() noexcept { next_due_ = base::Time::max(); }

  /// Notes in the channels whom the oldest open message waits for.
  void note_wait() noexcept;
  /// The ranks that wait for each other, `rank`, this one, first; none where they do not, or this one cannot see it.
  [[nodiscard]] std::vector<int> cycle(int rank) const;

 private:
  void note_wait(int rank) noexcept {
    if (rank != noted_) channels_.note_wait(noted_ = rank);
  }
  void count(const Message& message) noexcept;

  Channels& channels_;
  std::vector<Message*> open_;
  std::vector<Message*> done_;
  MessageCounters counters_;
  base::Time next_due_ = base::Time::max();
  int noted_ = Channels::kNobody;  // in the channels: whom this rank waits for
};

}  // namespace kolo::p2p
