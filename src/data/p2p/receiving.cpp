// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/receiving.hpp"

#include <algorithm>
#include <deque>
#include <string>

#include <kolo/error.hpp>

#include "data/p2p/message_sentences.hpp"

namespace kolo::p2p {

void Receiving::begin(Message& receive, const Frame& frame, Way way) {
  receive.state = Message::State::moving;
  receive.permit = frame.permit;
  receive.address = frame.address;
  if (frame.permit != 0) return reading_.push_back(&receive);
  incoming_[{receive.source, frame.id}] = &receive;
  sending_.answer(receive.source, {.id = frame.id, .kind = FrameKind::wanted, .way = way});
}

void Receiving::on_part(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
  const auto found = incoming_.find({source, frame.id});
  if (found == incoming_.end()) return;
  Message& receive = *found->second;
  if (frame.bytes != receive.moved || bytes > receive.received_bytes - receive.moved)
    blame(source, "sent ", bytes, " bytes from ", frame.bytes, " on where those from ", receive.moved, " to ",
          receive.received_bytes, " were due");
  copy_bytes(receive.data + receive.moved, data, bytes);
  receive.moved += bytes;
  if (receive.moved < receive.received_bytes) return;
  incoming_.erase(found);
  open_.end(receive);
}

void Receiving::on_withdrawn(int source, const Frame& frame) {
  const std::uint64_t id = frame.id;
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
  }
  receive->deserted_by = frame.because;
  open_.end(*receive, given_up_there(*receive, frame.because));
}

void Receiving::forget(Message& receive) {
  incoming_.erase({receive.source, receive.id});
  std::erase(reading_, &receive);
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

/// Reads as much of a message where it lies as the budget allows; whether there is more to be read.
bool Receiving::read_piece(Message& receive, std::uint64_t& budget) {
  const std::uint64_t bytes = std::min(budget, receive.received_bytes - receive.moved);
  budget -= bytes;
  switch (channels_.read(receive.source, receive.permit, receive.data + receive.moved, receive.address + receive.moved,
                         bytes)) {
  case Channels::Read::done:
    break;
  case Channels::Read::withdrawn:
    await_reason(receive);
    return false;
  case Channels::Read::failed:
    fall_back(receive);
    return false;
  }
  receive.moved += bytes;
  if (receive.moved < receive.received_bytes) return true;
  sending_.answer(receive.source, {.id = receive.id, .kind = FrameKind::taken});
  open_.end(receive);
  return false;
}

/// The sender has taken the permit back. If it has given up the send its frame says so; if its context has failed, or
/// it has left the job, this rank hears that from the log.
void Receiving::await_reason(Message& receive) {
  if (departed_.has(receive.source)) return open_.end(receive, has_departed(receive, departed_));
  receive.is_withdrawn = true;
  incoming_[{receive.source, receive.id}] = &receive;
}

/// Memory of a kind that cannot be read: it has to be sent, from the beginning.
void Receiving::fall_back(Message& receive) {
  receive.moved = 0;
  receive.permit = 0;
  incoming_[{receive.source, receive.id}] = &receive;
  sending_.answer(receive.source, {.id = receive.id, .kind = FrameKind::wanted});
}

/// Whether anything moved.
bool Receiving::read() {
  if (reading_.empty()) return false;
  std::uint64_t budget = channels_.read_bytes();
  std::size_t at = 0;
  while (at < reading_.size() && budget > 0) {
    if (read_piece(*reading_[at], budget)) {
      ++at;
    } else {
      reading_.erase(reading_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  std::rotate(reading_.begin(), reading_.begin() + static_cast<std::ptrdiff_t>(at), reading_.end());
  return true;
}

void Receiving::close() {
  incoming_.clear();
  reading_.clear();
}

}  // namespace kolo::p2p
