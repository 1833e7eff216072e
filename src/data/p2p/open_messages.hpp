// SPDX-License-Identifier: Apache-2.0
//
// The messages of one rank that are open: their deadlines, whom the oldest waits for, and how each ends. One thread at
// a time.
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
  void add(Message& message) {
    if (open_.empty()) note_wait(Channels::kNobody);
    message.open_index = open_.size();
    open_.push_back(&message);
    message.state = Message::State::waiting;
    note_deadline(message);
  }
  void end(Message& message, const Status& status = {}) {
    message.status = status;
    message.state = Message::State::done;
    if (status.ok()) {
      count(message);
      // Before this rank sleeps it notes the next. What has failed stays noted until then: the others in a cycle find
      // it.
      if (message.peer == noted_) note_wait(Channels::kNobody);
    }
    Message* const last = open_.back();
    open_.pop_back();
    if (last != &message) {
      last->open_index = message.open_index;
      open_[message.open_index] = last;
    }
    if (message.owner != nullptr) done_.push_back(&message);
  }
  /// A message has ended that was never open.
  void note_sent(const Message& send) noexcept {
    count(send);
    if (open_.empty() || send.peer == noted_) note_wait(Channels::kNobody);  // as `add` and `end` do
  }

  /// Those that are done since the last call, and have an owner.
  [[nodiscard]] std::vector<Message*>& done() noexcept { return done_; }
  [[nodiscard]] const std::vector<Message*>& done() const noexcept { return done_; }
  [[nodiscard]] const MessageCounters& counters() const noexcept { return counters_; }

  /// When deadlines and warnings must be looked at; possibly too early.
  [[nodiscard]] base::Time next_due() const noexcept { return next_due_; }
  void due_at(base::Time time) noexcept { next_due_ = std::min(next_due_, time); }
  /// An open message has got a deadline, and a time to warn.
  void note_deadline(const Message& message) noexcept { due_at(std::min(message.deadline, message.warn_at)); }
  /// All are looked at now, and each says anew when it is due.
  void forget_due() noexcept { next_due_ = base::Time::max(); }

  /// Notes in the channels whom the oldest open message waits for.
  void note_wait() noexcept {
    const auto before = [](const Message* a, const Message* b) { return a->begun < b->begun; };
    const auto oldest = std::min_element(open_.begin(), open_.end(), before);
    if (oldest != open_.end()) note_wait((*oldest)->peer == kAny ? Channels::kNobody : (*oldest)->peer);
  }
  /// The ranks that wait for each other, `rank`, this one, first; none where they do not, or this one cannot see it.
  [[nodiscard]] std::vector<int> cycle(int rank) const {
    std::vector<int> ranks{rank};
    for (int next = channels_.wait_of(rank); next != Channels::kNobody; next = channels_.wait_of(next)) {
      if (next == rank) return ranks.size() > 1 ? ranks : std::vector<int>{};
      if (std::find(ranks.begin(), ranks.end(), next) != ranks.end()) break;
      ranks.push_back(next);
    }
    return {};
  }

 private:
  void note_wait(int rank) noexcept {
    if (rank != noted_) channels_.note_wait(noted_ = rank);
  }
  void count(const Message& message) noexcept {
    if (message.role == Message::Role::send) {
      ++counters_.sent;
      counters_.bytes_sent += message.bytes;
    } else {
      ++counters_.received;
      counters_.bytes_received += message.received_bytes;
    }
  }

  Channels& channels_;
  std::vector<Message*> open_;
  std::vector<Message*> done_;
  MessageCounters counters_;
  base::Time next_due_ = base::Time::max();
  int noted_ = Channels::kNobody;  // in the channels: whom this rank waits for
};

}  // namespace kolo::p2p
