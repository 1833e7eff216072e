// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/receiving.hpp"

#include <algorithm>
#include <deque>
#include <string>

#include <kolo/error.hpp>

#include "data/p2p/sentences.hpp"

namespace kolo::p2p {

void Receiving::begin(Message& receive, const Frame& frame) {
  receive.state = Message::State::moving;
  receive.permit = frame.permit;
  receive.address = frame.address;
  if (frame.permit != 0) return begin_reading(receive);
  incoming_[{receive.source, frame.id}] = &receive;
  sending_.answer(receive.source, FrameKind::wanted, frame.id);
}

void Receiving::on_part(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
  const auto found = incoming_.find({source, frame.id});
  if (found == incoming_.end()) return;
  Message& receive = *found->second;
  if (frame.bytes != receive.moved || bytes > receive.received_bytes - receive.moved) {
    throw Error(ErrorCode::transport, "rank " + std::to_string(source) + " sent " + std::to_string(bytes) +
                                          " bytes from " + std::to_string(frame.bytes) + " on where those from " +
                                          std::to_string(receive.moved) + " to " +
                                          std::to_string(receive.received_bytes) + " were due");
  }
  copy_bytes(receive.data + receive.moved, data, bytes);
  receive.moved += bytes;
  if (receive.moved < receive.received_bytes) return;
  incoming_.erase(found);
  open_.end(receive);
}

void Receiving::on_withdrawn(int source, std::uint64_t id) {
  const auto found = incoming_.find({source, id});
  Message* receive = nullptr;
  if (found != incoming_.end()) {
    receive = found->second;
    incoming_.erase(found);
  } else {
    const auto reads = std::find_if(reading_.begin(), reading_.end(),
                                    [&](const Message* one) { return one->source == source && one->id == id; });
    if (reads == reading_.end()) return;
    receive = *reads;
    reading_.erase(reads);
    end_reading(*receive);
  }
  open_.end(*receive, given_up_there(*receive));
}

void Receiving::forget(Message& receive) {
  incoming_.erase({receive.source, receive.id});
  erase_one(reading_, &receive);
  end_reading(receive);
}

void Receiving::end_unasked(int rank) {
  const std::deque<Frame>* const answers = sending_.waiting_answers(rank);
  if (answers == nullptr) return;
  for (const Frame& frame : *answers) {
    const auto found = frame.kind == FrameKind::wanted ? incoming_.find({rank, frame.id}) : incoming_.end();
    if (found == incoming_.end()) continue;
    Message& receive = *found->second;
    incoming_.erase(found);
    open_.end(receive, has_departed(receive, departed_));
  }
}

/// A receive whose message this rank reads where it lies. Where ranks send to each other, or in a ring, each has enough
/// to read: to help one another would cost them a tenth.
void Receiving::begin_reading(Message& receive) {
  if (!sending_.is_read()) receive.ticket = channels_.open_joint(receive.source, receive.data, receive.received_bytes);
  if (receive.ticket != 0) {
    Frame frame;
    frame.kind = FrameKind::helped;
    frame.id = receive.id;
    frame.permit = receive.ticket;
    sending_.answer(receive.source, frame);
  }
  reading_.push_back(&receive);
}

/// Before it is done, or comes in another way: nobody writes for it any more.
void Receiving::end_reading(Message& receive) noexcept {
  if (receive.ticket != 0) channels_.close_joint(receive.source, std::exchange(receive.ticket, 0));
}

/// Reads a piece of a message where it lies, of so many bytes at most unless the sender helps.
Receiving::Reading Receiving::read_piece(Message& receive, std::uint64_t& budget) {
  using State = Channels::Piece::State;
  Channels::Piece piece{State::due, receive.moved, std::min(budget, receive.received_bytes - receive.moved)};
  if (receive.ticket != 0) piece = channels_.take_piece(receive.source, receive.ticket);
  if (piece.begin > receive.received_bytes || piece.bytes > receive.received_bytes - piece.begin) {
    throw Error(ErrorCode::transport,
                "a piece of a message from rank " + std::to_string(receive.source) +
                    " lies outside of it: another process has changed what this rank keeps of it");
  }
  if (piece.state == State::written) {
    open_.due_at(piece.look_again);
    return Reading::waits;
  }
  if (piece.state == State::abandoned) {
    end_reading(receive);  // the rest is read alone
    return Reading::goes_on;
  }
  if (piece.state == State::due) {
    budget -= std::min<std::uint64_t>(budget, piece.bytes);
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
  sending_.answer(receive.source, FrameKind::taken, receive.id);
  open_.end(receive);
  return Reading::ended;
}

/// The sender has taken the permit back. If it has given up the send its frame says so; if its context has failed, or
/// it has left the job, this rank hears that from the log.
void Receiving::await_reason(Message& receive) {
  end_reading(receive);
  if (departed_.has(receive.source)) return open_.end(receive, has_departed(receive, departed_));
  receive.is_withdrawn = true;
  incoming_[{receive.source, receive.id}] = &receive;
}

/// Memory of a kind that cannot be read: it has to be sent, from the beginning.
Receiving::Reading Receiving::fall_back(Message& receive) {
  end_reading(receive);
  receive.moved = 0;
  receive.permit = 0;
  incoming_[{receive.source, receive.id}] = &receive;
  sending_.answer(receive.source, FrameKind::wanted, receive.id);
  return Reading::ended;
}

/// Whether anything moved.
bool Receiving::read() {
  std::uint64_t budget = channels_.read_bytes();
  bool moved = false;
  std::size_t at = 0;
  while (at < reading_.size() && budget > 0) {
    const Reading reading = read_piece(*reading_[at], budget);
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

void Receiving::close() {
  incoming_.clear();
  for (Message* receive : reading_) end_reading(*receive);
  reading_.clear();
}

}  // namespace kolo::p2p
