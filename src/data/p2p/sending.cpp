// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/sending.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "core/element_types.hpp"
#include "data/p2p/message_sentences.hpp"

namespace kolo::p2p {
namespace {

/// How many parts go into a channel before those of others do.
constexpr int kPartsInARow = 8;

}  // namespace

Frame Sending::head_of(const Message& send) {
  return {.set = send.set, .id = send.id, .bytes = send.bytes, .tag = send.tag, .dtype = send.dtype};
}

void Sending::start(Message& send) {
  Outgoing& to = outgoing(send.peer);
  if (to.beginning.empty() && begin(send)) return;
  to.beginning.push_back(&send);
  mark_busy(send.peer, to);
}

bool Sending::try_send(const Message& send) {
  if (send.bytes > channels_.whole_bytes(send.peer) || !outgoing(send.peer).beginning.empty()) return false;
  Frame frame = head_of(send);
  frame.id = last_id_ + 1;
  if (!channels_.put(send.peer, frame, send.data, send.bytes)) return false;
  ++last_id_;
  open_.note_sent(send);
  return true;
}

void Sending::add_wanted(Message& send) {
  Outgoing& to = outgoing(send.peer);
  to.wanted.push_back(&send);
  mark_busy(send.peer, to);
}

Sending::Outgoing& Sending::outgoing(int rank) {
  std::unique_ptr<Outgoing>& to = outgoing_[static_cast<std::size_t>(rank)];
  if (!to) to = std::make_unique<Outgoing>();
  return *to;
}

void Sending::mark_busy(int rank, Outgoing& outgoing) {
  if (!std::exchange(outgoing.is_busy, true)) busy_.push_back(rank);
}

void Sending::answer(int rank, const Frame& frame) {
  Outgoing& to = outgoing(rank);
  if (to.answers.empty() && channels_.put(rank, frame, nullptr, 0)) return;
  to.answers.push_back(frame);
  mark_busy(rank, to);
}

/// Puts the first frame of a send into its channel; false: there is no space.
bool Sending::begin(Message& send) {
  Frame frame = head_of(send);
  if (send.bytes <= channels_.whole_bytes(send.peer) && !send.is_late) {
    if (!channels_.put(send.peer, frame, send.data, send.bytes)) return false;
    open_.end(send);
    return true;
  }
  frame.kind = FrameKind::announced;
  if (send.permit == 0 && !send.is_late) send.permit = channels_.permit(send.peer, send.bytes);
  frame.permit = send.permit;
  frame.address = reinterpret_cast<std::uintptr_t>(send.data);
  frame.way = send.way;
  if (!channels_.put(send.peer, frame, nullptr, 0)) return false;
  send.state = Message::State::announced;
  announced_[send.id] = &send;
  return true;
}

/// Puts data into the channel until that is full, or no more is there; whether all is in.
bool Sending::push_parts(Message& send, bool& moved) {
  const std::uint64_t most = channels_.frame_bytes(send.peer);
  Frame frame{.id = send.id, .kind = FrameKind::part};
  for (int parts = 0; parts < kPartsInARow && send.moved < send.there; ++parts) {
    frame.bytes = send.moved;
    const std::uint64_t bytes = std::min(most, send.there - send.moved);
    if (!channels_.put(send.peer, frame, send.data + send.moved, bytes)) return false;
    moved = true;
    send.moved += bytes;
    if (send.moved == send.bytes) return true;
  }
  return false;
}

/// Whether all of it is in the channel.
bool Sending::flush(int rank, Outgoing& outgoing, bool& moved) {
  while (!outgoing.answers.empty()) {
    if (!channels_.put(rank, outgoing.answers.front(), nullptr, 0)) return false;
    outgoing.answers.pop_front();
    moved = true;
  }
  while (!outgoing.beginning.empty()) {
    if (!begin(*outgoing.beginning.front())) return false;
    outgoing.beginning.pop_front();
    moved = true;
  }
  if (!outgoing.wanted.empty()) {
    Message& send = *outgoing.wanted.front();
    outgoing.wanted.pop_front();
    KOLO_CHECK(!send.done()) << "a send that is done is still wanted";
    if (push_parts(send, moved)) {
      announced_.erase(send.id);
      open_.end(send);
    } else if (send.moved < send.there) {
      outgoing.wanted.push_back(&send);  // others come in between
    }
  }
  return outgoing.wanted.empty();
}

bool Sending::flush() {
  bool moved = false;
  std::size_t kept = 0;
  for (const int rank : busy_) {
    Outgoing& to = outgoing(rank);
    if (flush(rank, to, moved)) {
      to.is_busy = false;
    } else {
      busy_[kept++] = rank;
    }
  }
  busy_.resize(kept);
  return moved;
}

void Sending::withdraw(Message& send, int because) {
  Outgoing& to = outgoing(send.peer);
  end_permit(send);
  if (send.state == Message::State::waiting) {
    std::erase(to.beginning, &send);
    return;
  }
  std::erase(to.wanted, &send);
  announced_.erase(send.id);
  if (send.way == Way::device) given_up_[send.id] = send.peer;
  answer(send.peer, {.id = send.id, .because = because, .kind = FrameKind::withdrawn});
}

/// Nobody reads a send's memory any more.
void Sending::end_permit(Message& send) noexcept {
  if (send.permit != 0) channels_.end(std::exchange(send.permit, 0));
}

/// The send that a receiver's answer is about; null: it is no more.
Message* Sending::find_answered(int source, std::uint64_t id) {
  const auto found = announced_.find(id);
  if (found == announced_.end()) {
    const auto awaited = given_up_.find(id);
    if (awaited != given_up_.end() && awaited->second == source) given_up_.erase(awaited);
    return nullptr;
  }
  if (found->second->peer == source) return found->second;
  blame(source, "answered a message that was sent to rank ", found->second->peer);
}

Message* Sending::on_wanted(int source, std::uint64_t id) {
  Message* const send = find_answered(source, id);
  if (send == nullptr || send->state != Message::State::announced) return nullptr;
  end_permit(*send);  // the peer could not read
  send->state = Message::State::moving;
  if (send->there > 0) add_wanted(*send);  // else `provide` does
  return send;
}

Message* Sending::take_for_device(int source, std::uint64_t id) {
  Message* const send = find_answered(source, id);
  if (send == nullptr) return nullptr;
  if (send->way != Way::device || send->state != Message::State::announced)
    blame(source, "wants a message by the devices that was not offered by them");
  announced_.erase(id);
  return send;
}

void Sending::on_taken(int source, std::uint64_t id) {
  Message* const send = find_answered(source, id);
  if (send == nullptr) return;
  if (send->permit == 0) blame(source, "says that it has read a message that it may not read");
  announced_.erase(id);
  end_permit(*send);
  open_.end(*send);
}

void Sending::on_refused(int source, const Frame& frame) {
  Message* const found = find_answered(source, frame.id);
  if (found == nullptr) return;
  Message& send = *found;
  announced_.erase(frame.id);
  end_permit(send);
  std::erase(outgoing(send.peer).wanted, &send);
  switch (frame.refusal) {
  case Refusal::too_long:
    return open_.end(send, too_long_for(send, frame.bytes));
  case Refusal::other_type:
    return open_.end(send, other_type_there(send, std::min(frame.dtype, core::kLastDType)));
  case Refusal::set_gone:
    return open_.end(send, set_gone_there(send));
  case Refusal::none:
  case Refusal::given_up:
    break;
  }
  send.deserted_by = frame.because;
  open_.end(send, given_up_there(send, frame.because));
}

const std::deque<Frame>* Sending::waiting_answers(int rank) const noexcept {
  const std::unique_ptr<Outgoing>& to = outgoing_[static_cast<std::size_t>(rank)];
  return to ? &to->answers : nullptr;
}

void Sending::drop(int rank) {
  outgoing_[static_cast<std::size_t>(rank)].reset();
  std::erase(busy_, rank);
  std::erase_if(given_up_, [rank](const auto& awaited) { return awaited.second == rank; });
}

void Sending::close() {
  for (std::unique_ptr<Outgoing>& to : outgoing_) to.reset();
  busy_.clear();
  announced_.clear();
  given_up_.clear();
}

}  // namespace kolo::p2p
