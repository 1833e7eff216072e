// SPDX-License-Identifier: Apache-2.0
//
// What a rank puts into its channels, and what it reads of other ranks' memory.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "data/p2p/protocol.hpp"
#include "data/p2p/sentences.hpp"

namespace kolo::p2p {
namespace {

/// How many parts go into a channel before others have their turn.
constexpr int kPartsPerTurn = 8;

}  // namespace

Frame Protocol::head_of(const Message& send) {
  Frame frame;
  frame.set = send.set;
  frame.id = send.id;
  frame.bytes = send.bytes;
  frame.tag = send.tag;
  frame.dtype = send.dtype;
  return frame;
}

void Protocol::start_send(Message& send) {
  send.id = ++last_id_;
  if (!send.is_late) send.there = send.bytes;
  if (send.peer == rank_) return send_to_self(send);
  if (left_.count(send.peer) > 0) return end(send, has_left(send));
  Outgoing& to = outgoing(send.peer);
  if (to.beginning.empty() && begin(send)) return;
  to.beginning.push_back(&send);
  mark_busy(send.peer, to);
}

bool Protocol::try_send(const Message& send) {
  const bool is_short = send.bytes <= channels_.whole_bytes(send.peer) && !send.is_late;
  if (!closed_.ok() || !is_short || send.peer == rank_ || left_.count(send.peer) > 0) return false;
  if (!outgoing(send.peer).beginning.empty()) return false;
  Frame frame = head_of(send);
  frame.id = last_id_ + 1;
  if (!channels_.put(send.peer, frame, send.data, send.bytes)) return false;
  ++last_id_;
  count(send);
  if (open_.empty() || send.peer == noted_) note_wait(Channels::kNobody);  // as `start` and `end` do
  return true;
}

/// A send stands among those that are wanted while more of its data is there than in the channel: once, for it may go
/// away as soon as it is done. Who copies the data has news that more is there, and also other news.
void Protocol::provide(Message& send, std::uint64_t bytes) {
  if (bytes == send.there) return;
  const bool was_stuck = send.moved == send.there;
  send.there = bytes;
  if (send.state != Message::State::moving) return;
  if (send.partner != nullptr) {
    if (send.there == send.bytes) copy_own(*send.partner, send);
  } else if (was_stuck) {
    add_wanted(send);
  }
}

void Protocol::add_wanted(Message& send) {
  Outgoing& to = outgoing(send.peer);
  to.wanted.push_back(&send);
  mark_busy(send.peer, to);
}

Protocol::Outgoing& Protocol::outgoing(int rank) {
  std::unique_ptr<Outgoing>& to = outgoing_[static_cast<std::size_t>(rank)];
  if (!to) to = std::make_unique<Outgoing>();
  return *to;
}

void Protocol::mark_busy(int rank, Outgoing& outgoing) {
  if (!std::exchange(outgoing.is_busy, true)) busy_.push_back(rank);
}

void Protocol::answer(int rank, FrameKind kind, std::uint64_t id) {
  Frame frame;
  frame.kind = kind;
  frame.id = id;
  answer(rank, frame);
}

void Protocol::answer(int rank, const Frame& frame) {
  Outgoing& to = outgoing(rank);
  if (to.answers.empty() && channels_.put(rank, frame, nullptr, 0)) return;
  to.answers.push_back(frame);
  mark_busy(rank, to);
}

/// Puts the first frame of a send into its channel; false: there is no room.
bool Protocol::begin(Message& send) {
  Frame frame = head_of(send);
  if (send.bytes <= channels_.whole_bytes(send.peer) && !send.is_late) {
    if (!channels_.put(send.peer, frame, send.data, send.bytes)) return false;
    end(send);
    return true;
  }
  frame.kind = FrameKind::announced;
  if (send.permit == 0 && !send.is_late) send.permit = channels_.permit(send.peer, send.bytes);
  frame.permit = send.permit;
  frame.address = reinterpret_cast<std::uintptr_t>(send.data);
  if (!channels_.put(send.peer, frame, nullptr, 0)) return false;
  send.state = Message::State::announced;
  announced_[send.id] = &send;
  return true;
}

/// Puts data into the channel until that is full, or no more is there; whether all is in.
bool Protocol::push_parts(Message& send, bool& moved) {
  const std::uint64_t most = channels_.frame_bytes(send.peer);
  Frame frame;
  frame.kind = FrameKind::part;
  frame.id = send.id;
  for (int parts = 0; parts < kPartsPerTurn && send.moved < send.there; ++parts) {
    frame.bytes = send.moved;
    const std::uint64_t bytes = std::min(most, send.there - send.moved);
    if (!channels_.put(send.peer, frame, send.data + send.moved, bytes)) return false;
    moved = true;
    send.moved += bytes;
    if (send.moved == send.bytes) return true;
  }
  return false;
}

/// Whether nothing is left.
bool Protocol::flush(int rank, Outgoing& outgoing, bool& moved) {
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
      end(send);
    } else if (send.moved < send.there) {
      outgoing.wanted.push_back(&send);  // others have their turn
    }
  }
  return outgoing.wanted.empty();
}

bool Protocol::flush() {
  bool moved = false;
  std::size_t left = 0;
  for (const int rank : busy_) {
    Outgoing& to = outgoing(rank);
    if (flush(rank, to, moved)) {
      to.is_busy = false;
    } else {
      busy_[left++] = rank;
    }
  }
  busy_.resize(left);
  return moved;
}

/// A receive whose message this rank reads where it lies. Where ranks send to each other, or in a ring, each has enough
/// to read: to help one another would cost them a tenth.
void Protocol::begin_reading(Message& receive) {
  const bool sends = std::any_of(announced_.begin(), announced_.end(),
                                 [](const auto& announced) { return announced.second->permit != 0; });
  if (!sends) receive.ticket = channels_.open_joint(receive.source, receive.data, receive.received_bytes);
  if (receive.ticket != 0) {
    Frame frame;
    frame.kind = FrameKind::helped;
    frame.id = receive.id;
    frame.permit = receive.ticket;
    answer(receive.source, frame);
  }
  reading_.push_back(&receive);
}

/// Before it is done, or comes in another way: nobody writes for it any more.
void Protocol::end_reading(Message& receive) noexcept {
  if (receive.ticket != 0) channels_.close_joint(receive.source, std::exchange(receive.ticket, 0));
}

/// Reads a piece of a message where it lies, of so many bytes at most unless the sender helps.
Protocol::Reading Protocol::read_piece(Message& receive, std::uint64_t& left) {
  using State = Channels::Piece::State;
  Channels::Piece piece{State::due, receive.moved, std::min(left, receive.received_bytes - receive.moved)};
  if (receive.ticket != 0) piece = channels_.take_piece(receive.source, receive.ticket);
  if (piece.begin > receive.received_bytes || piece.bytes > receive.received_bytes - piece.begin) {
    throw Error(ErrorCode::transport,
                "a piece of a message from rank " + std::to_string(receive.source) +
                    " lies outside of it: another process has changed what this rank keeps of it");
  }
  if (piece.state == State::written) {
    next_due_ = std::min(next_due_, piece.look_again);
    return Reading::waits;
  }
  if (piece.state == State::left) {
    end_reading(receive);  // the rest is read alone
    return Reading::goes_on;
  }
  if (piece.state == State::due) {
    left -= std::min<std::uint64_t>(left, piece.bytes);
    switch (channels_.read(receive.source, receive.permit, receive.data + piece.begin, receive.address + piece.begin,
                           piece.bytes)) {
    case Channels::Read::done:
      break;
    case Channels::Read::withdrawn:
      await_reason(receive);
      return Reading::ended;
    case Channels::Read::failed:
      return fall_back(receive);
    }
    receive.moved += piece.bytes;
    if (receive.ticket != 0 || receive.moved < receive.received_bytes) return Reading::goes_on;
  }
  end_reading(receive);
  answer(receive.source, FrameKind::taken, receive.id);
  end(receive);
  return Reading::ended;
}

/// The sender has taken the permit back. If it has given up the send its frame says so; if its context has failed, or
/// it has left the job, this rank hears that from the log.
void Protocol::await_reason(Message& receive) {
  end_reading(receive);
  if (left_.count(receive.source) > 0) return end(receive, has_left(receive));
  receive.is_withdrawn = true;
  incoming_[{receive.source, receive.id}] = &receive;
}

/// Memory of a kind that cannot be read: it has to be sent, from the beginning.
Protocol::Reading Protocol::fall_back(Message& receive) {
  end_reading(receive);
  receive.moved = 0;
  receive.permit = 0;
  incoming_[{receive.source, receive.id}] = &receive;
  answer(receive.source, FrameKind::wanted, receive.id);
  return Reading::ended;
}

/// Whether anything moved.
bool Protocol::read() {
  std::uint64_t left = channels_.read_bytes();
  bool moved = false;
  std::size_t at = 0;
  while (at < reading_.size() && left > 0) {
    const Reading reading = read_piece(*reading_[at], left);
    moved = moved || reading != Reading::waits;
    if (reading == Reading::ended) {
      reading_.erase(reading_.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      ++at;
    }
  }
  std::rotate(reading_.begin(), reading_.begin() + static_cast<std::ptrdiff_t>(at), reading_.end());
  return moved;
}

/// Writes a piece of a message whose receiver reads it; whether there was one.
bool Protocol::help() {
  while (!helping_.empty()) {
    Message& send = *helping_.back();
    if (channels_.help(send.peer, send.ticket, send.data, send.bytes) == Channels::Help::wrote) return true;
    helping_.pop_back();
  }
  return false;
}

}  // namespace kolo::p2p
