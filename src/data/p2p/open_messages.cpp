// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/open_messages.hpp"

namespace kolo::p2p {

void OpenMessages::add(Message& message) {
  if (open_.empty()) note_wait(Channels::kNobody);
  message.open_index = open_.size();
  open_.push_back(&message);
  message.state = Message::State::waiting;
  note_deadline(message);
}

void OpenMessages::end(Message& message, const Status& status) {
  message.status = status;
  message.state = Message::State::done;
  if (status.ok()) {
    count(message);
    // Before this rank sleeps it notes the next. What has failed stays noted until then: the others in a cycle find it.
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

void OpenMessages::note_sent(const Message& send) noexcept {
  count(send);
  if (open_.empty() || send.peer == noted_) note_wait(Channels::kNobody);  // as `add` and `end` do
}

void OpenMessages::count(const Message& message) noexcept {
  if (message.way == Message::Way::send) {
    ++counters_.sent;
    counters_.bytes_sent += message.bytes;
  } else {
    ++counters_.received;
    counters_.bytes_received += message.received_bytes;
  }
}

void OpenMessages::note_wait() noexcept {
  const auto before = [](const Message* a, const Message* b) { return a->begun < b->begun; };
  const auto oldest = std::min_element(open_.begin(), open_.end(), before);
  if (oldest != open_.end()) note_wait((*oldest)->peer == kAny ? Channels::kNobody : (*oldest)->peer);
}

std::vector<int> OpenMessages::cycle(int rank) const {
  std::vector<int> ranks{rank};
  for (int next = channels_.wait_of(rank); next != Channels::kNobody; next = channels_.wait_of(next)) {
    if (next == rank) return ranks.size() > 1 ? ranks : std::vector<int>{};
    if (std::find(ranks.begin(), ranks.end(), next) != ranks.end()) break;
    ranks.push_back(next);
  }
  return {};
}

}  // namespace kolo::p2p
