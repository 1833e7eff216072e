// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/protocol.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "core/element_types.hpp"
#include "data/p2p/message_sentences.hpp"

namespace kolo::p2p {

// ---------------------------------------------------------------- calls

void Protocol::start(Message& message) {
  open_.add(message);
  if (!closed_.ok()) return open_.end(message, closed_);
  try {
    message.role == Message::Role::send ? start_send(message) : start_receive(message);
  } catch (...) {  // no memory: the message goes with the call
    give_up(message, no_memory());
    throw;
  }
}

void Protocol::start_send(Message& send) {
  sending_.give_id(send);
  if (!send.is_late) send.there = send.bytes;
  if (send.peer == rank_) return send_to_self(send);
  if (departed_.has(send.peer)) return open_.end(send, has_departed(send, departed_));
  const Direction direction{rank_, send.peer};
  if (send.on_device && may_meet(direction)) send.way = found_.count(direction) > 0 ? Way::device : Way::introduce;
  if (send.is_late && send.way != Way::device) news_.late.push_back(&send);
  sending_.start(send);
}

bool Protocol::try_send(const Message& send) {
  if (!closed_.ok() || send.is_late || send.peer == rank_ || departed_.has(send.peer)) return false;
  return sending_.try_send(send);
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
    sending_.add_wanted(send);
  }
}

void Protocol::send_to_self(Message& send) {
  Frame frame = Sending::head_of(send);
  if (Message* receive = matching_.find(frame, rank_)) {
    take_own(*receive, send, frame);
    if (send.is_late && !send.done()) news_.late.push_back(&send);
    return;
  }
  Arrival arrival{frame, rank_, nullptr, nullptr};
  if (send.is_late) news_.late.push_back(&send);
  if (send.bytes > kWholeBytes || send.is_late) {
    arrival.frame.kind = FrameKind::announced;
    arrival.own = &send;
    send.state = Message::State::announced;
    matching_.keep(std::move(arrival));
    return;
  }
  arrival.data = std::make_unique_for_overwrite<std::byte[]>(send.bytes);
  copy_bytes(arrival.data.get(), send.data, send.bytes);
  if (matching_.kept().bytes + arrival.cost() > limits_.of_all) {
    const Matching::Kept kept = matching_.kept_of(rank_);
    return open_.end(send, keeps_too_much(rank_, kept.messages + 1, matching_.kept().bytes + arrival.cost()));
  }
  matching_.keep(std::move(arrival));
  open_.end(send);
}

/// A message of another rank. What is kept of it is lost by an exception: that ends the job.
void Protocol::keep(Arrival arrival) {
  const int source = arrival.source;
  matching_.keep(std::move(arrival));
  if (matching_.kept().bytes <= limits_.of_all) return;
  throw Error(keeps_too_much(source, matching_.kept_of(source).messages, matching_.kept().bytes));
}

/// Of what is behind the frames that were taken, an open message may wait for its own alone.
bool Protocol::wants(int source) const noexcept {
  if (matching_.kept().bytes < limits_.of_rank || matching_.kept_of(source).bytes < limits_.of_rank) return true;
  if (departed_.has(source)) return true;  // it sends nothing more
  return std::any_of(open_.begin(), open_.end(),
                     [source](const Message* message) { return message->peer == source || message->peer == kAny; });
}

void Protocol::start_receive(Message& receive) {
  const std::optional<Arrival> arrival = matching_.post(receive);
  if (!arrival) {
    if (!departed_.until.empty()) receive_nothing_from(receive.peer);
  } else if (arrival->own != nullptr) {
    take_own(receive, *arrival->own, arrival->frame);
  } else if (arrival->frame.kind == FrameKind::whole) {
    take_whole(receive, arrival->source, arrival->frame, arrival->data.get());
  } else {
    accept(receive, arrival->source, arrival->frame);
  }
}

bool Protocol::cancel(Message& receive) {
  if (receive.state != Message::State::waiting || !matching_.remove(receive)) return false;
  open_.end(receive, cancelled(receive));
  return true;
}

void Protocol::await(Message& receive) {
  if (receive.done()) return;
  receive.is_awaited = true;
  if (!departed_.until.empty()) receive_nothing_from(receive.peer);
}

void Protocol::give_up(Message& message, const Status& status, int because) {
  if (message.done() || message.state == Message::State::fresh) return;
  try {
    detach(message, because);
  } catch (const std::bad_alloc&) {  // the other side is not told, and its deadline ends its part
  }
  message.deserted_by = because;
  open_.end(message, status);
}

void Protocol::close(const Status& status) {
  if (!closed_.ok()) return;
  closed_ = status;
  for (const Message* message : open_) {
    if (message->role == Message::Role::send && message->permit != 0) channels_.end(message->permit);
  }
  sending_.close();
  receiving_.close();
  matching_.clear();
  while (!open_.empty()) open_.end(*open_.all().back(), status);
}

/// Takes an open message out of everything that knows it, and tells the other side.
void Protocol::detach(Message& message, int because) {
  if (Message* partner = std::exchange(message.partner, nullptr)) {
    partner->partner = nullptr;
    return open_.end(*partner, given_up_there(*partner, because));
  }
  if (message.role == Message::Role::send) {
    if (message.peer != rank_) return sending_.withdraw(message, because);
    matching_.remove(rank_, message.id);
    return;
  }
  if (message.state == Message::State::waiting) {
    matching_.remove(message);
    return;
  }
  receiving_.forget(message);
  sending_.answer(message.source,
                  {.id = message.id, .because = because, .kind = FrameKind::refused, .refusal = Refusal::given_up});
}

// ---------------------------------------------------------------- what is heard

void Protocol::on_set(std::uint64_t set) {
  sets_.insert(set);
  last_set_ = std::max(last_set_, set);
}

/// Receives of the set may still match what is on its way. What waits for a receive fails.
void Protocol::on_set_gone(std::uint64_t set) {
  sets_.erase(set);
  while (std::optional<Arrival> arrival = matching_.take_of_set(set)) {
    if (arrival->own != nullptr) {
      open_.end(*arrival->own, set_gone_there(*arrival->own));
    } else if (arrival->frame.kind == FrameKind::announced) {
      sending_.answer(arrival->source,
                      {.id = arrival->frame.id, .kind = FrameKind::refused, .refusal = Refusal::set_gone});
    }
  }
}

/// Serial numbers rise. One that is not known yet is that of a set of which this rank has not read in the log so far.
bool Protocol::is_gone(std::uint64_t set) const { return set != 0 && set <= last_set_ && sets_.count(set) == 0; }

/// What the rank has said last comes first: it may have taken a message. This rank hears of itself, too, and waits for
/// the others as before.
void Protocol::on_departed(int rank, base::Time until, int because) {
  if (rank == rank_ || !closed_.ok() || !departed_.until.emplace(rank, until).second) return;
  if (because >= 0) departed_.because.emplace(rank, because);
  departed_.order.push_back(rank);
  const bool is_here = until == base::Time::min();
  while (is_here && channels_.take(*this)) {
  }
  const std::vector<Message*> open = open_.all();
  for (Message* message : open) {
    if (message->role == Message::Role::send && message->peer == rank)
      give_up(*message, has_departed(*message, departed_));
    if (message->is_withdrawn && message->source == rank) give_up(*message, has_departed(*message, departed_));
  }
  receiving_.end_unasked(rank);
  sending_.drop(rank);
  if (is_here) {
    on_silent(rank);
  } else {
    open_.due_at(until);
  }
}

void Protocol::on_silent(int rank) {
  if (!silent_.insert(rank).second) return;
  receive_nothing_from(rank);
  receive_nothing_from(kAny);
}

/// Ends receives that wait for a rank that has left, or for any when all others have and nobody here will send either.
void Protocol::receive_nothing_from(int rank) {
  const auto is_silent = [&](int other) { return silent_.count(other) > 0; };
  const auto is_hopeless = [&](const Message& receive) {
    if (receive.peer != rank) return false;
    if (rank != kAny) return is_silent(rank);
    if (!receive.is_awaited) return false;
    if (receive.members != nullptr) {
      return receive.members->size() > 1 &&
             std::all_of(receive.members->begin(), receive.members->end(),
                         [&](int member) { return member == rank_ || is_silent(member); });
    }
    return size_ > 1 && silent_.size() + 1 == static_cast<std::size_t>(size_);
  };
  std::vector<Message*> lost;
  for (Message* receive : matching_.posted()) {
    if (is_hopeless(*receive)) lost.push_back(receive);
  }
  for (Message* receive : lost) {
    matching_.remove(*receive);
    open_.end(*receive, has_departed(*receive, departed_));
  }
}

void Protocol::on_frame(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
  if (frame.way > Way::device)
    blame(source, "sent a frame of way ", static_cast<unsigned>(frame.way), ", which does not exist");
  if (frame.because < -1 || frame.because >= size_)
    blame(source, "sent a frame that names rank ", frame.because, " of ", size_);
  switch (frame.kind) {
  case FrameKind::whole:
    return on_whole(source, frame, data, bytes);
  case FrameKind::announced:
    return on_announced(source, frame);
  case FrameKind::part:
    return receiving_.on_part(source, frame, data, bytes);
  case FrameKind::withdrawn:
    return on_withdrawn(source, frame);
  case FrameKind::wanted:
    return on_wanted(source, frame);
  case FrameKind::taken:
    return sending_.on_taken(source, frame.id);
  case FrameKind::refused:
    return sending_.on_refused(source, frame);
  }
  blame(source, "sent a frame of kind ", static_cast<unsigned>(frame.kind), ", which does not exist");
}

void Protocol::on_whole(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
  if (frame.bytes != bytes || frame.dtype > core::kLastDType)
    blame(source, "sent a message of ", bytes, " bytes that says it has ", frame.bytes);
  if (Message* receive = matching_.find(frame, source)) return take_whole(*receive, source, frame, data);
  if (is_gone(frame.set)) return;
  Arrival arrival{frame, source, std::make_unique_for_overwrite<std::byte[]>(bytes), nullptr};
  copy_bytes(arrival.data.get(), data, bytes);
  keep(std::move(arrival));
}

void Protocol::on_announced(int source, const Frame& frame) {
  if (frame.dtype > core::kLastDType) blame(source, "announced a message of an unknown type");
  if (Message* receive = matching_.find(frame, source)) return accept(*receive, source, frame);
  keep({frame, source, nullptr, nullptr});
  if (is_gone(frame.set)) on_set_gone(frame.set);
}

void Protocol::on_withdrawn(int source, const Frame& frame) {
  const std::optional<Arrival> arrival = matching_.remove(source, frame.id);
  if (!arrival) return receiving_.on_withdrawn(source, frame);
  if (arrival->frame.way == Way::device)
    sending_.answer(source, {.id = frame.id, .kind = FrameKind::refused, .refusal = Refusal::given_up});
}

void Protocol::on_wanted(int source, const Frame& frame) {
  if (frame.way == Way::device) {
    if (Message* send = sending_.take_for_device(source, frame.id)) return open_.end(*send);
    Message& nothing = news_.void_sends.emplace_back();
    nothing.peer = source;
    nothing.way = Way::device;
    nothing.state = Message::State::done;
    open_.done().push_back(&nothing);
    return;
  }
  Message* const send = sending_.on_wanted(source, frame.id);
  if (frame.way == Way::introduce) meet({rank_, source});
  if (send != nullptr && std::exchange(send->way, Way::host) == Way::device) news_.late.push_back(send);
}

/// Whether a message may be written into the receive's buffer; else the receive is done.
bool Protocol::fits(Message& receive, int source, const Frame& frame) {
  receive.source = source;
  receive.received_tag = frame.tag;
  receive.received_bytes = frame.bytes;
  receive.id = frame.id;
  Frame refusal{.id = frame.id, .bytes = receive.bytes, .kind = FrameKind::refused, .dtype = receive.dtype};
  if (frame.dtype != receive.dtype) {
    refusal.refusal = Refusal::other_type;
    open_.end(receive, other_type(receive, source, frame.tag, frame.dtype));
  } else if (frame.bytes > receive.bytes) {
    refusal.refusal = Refusal::too_long;
    open_.end(receive, too_long(receive, source, frame.tag, frame.bytes));
  } else {
    return true;
  }
  if (frame.kind == FrameKind::announced && source != rank_) sending_.answer(source, refusal);
  return false;
}

void Protocol::take_whole(Message& receive, int source, const Frame& frame, const std::byte* data) {
  if (!fits(receive, source, frame)) return;
  copy_bytes(receive.data, data, frame.bytes);
  open_.end(receive);
}

bool Protocol::may_meet(const Direction& direction) const {
  return met_.size() < kMostDirectionsByDevice || met_.count(direction) > 0;
}

void Protocol::meet(const Direction& direction) {
  met_.insert(direction);
  news_.met.push_back(direction);
}

/// Of a send to oneself that is still open.
void Protocol::take_own(Message& receive, Message& send, const Frame& frame) {
  if (fits(receive, rank_, frame)) {
    if (send.there == send.bytes) return copy_own(receive, send);
    receive.state = send.state = Message::State::moving;
    receive.partner = &send;
    send.partner = &receive;
    return;
  }
  open_.end(send,
            frame.dtype != receive.dtype ? other_type_there(send, receive.dtype) : too_long_for(send, receive.bytes));
}

void Protocol::copy_own(Message& receive, Message& send) {
  receive.partner = send.partner = nullptr;
  if (send.bytes > 0) std::memmove(receive.data, send.data, send.bytes);  // a program may give the same memory
  open_.end(receive);
  open_.end(send);
}

void Protocol::accept(Message& receive, int source, const Frame& frame) {
  if (!fits(receive, source, frame)) return;
  const Direction direction{source, rank_};
  const bool could = receive.on_device && frame.way != Way::host && may_meet(direction);
  if (could && frame.way == Way::device && found_.count(direction) > 0) {
    receive.way = Way::device;
    sending_.answer(source, {.id = frame.id, .kind = FrameKind::wanted, .way = Way::device});
    return open_.end(receive);
  }
  if (could) meet(direction);
  receiving_.begin(receive, frame, could ? Way::introduce : Way::host);
}

void Protocol::take_news(News& news) {
  news.met.clear();
  news.late.clear();
  news.done.clear();
  news.void_sends.clear();
  std::swap(news, news_);
  news.done.swap(open_.done());
}

bool Protocol::progress() {
  try {
    bool moved = channels_.take(*this);
    moved |= sending_.flush();
    moved |= receiving_.read();
    return moved;
  } catch (const std::bad_alloc&) {  // what has come is lost
    throw Error(ErrorCode::transport, "there is no memory left for messages");
  }
}

// ---------------------------------------------------------------- deadlines

void Protocol::expire(base::Time now) {
  if (now < open_.next_due()) return;
  open_.note_wait();
  open_.forget_due();
  for (const auto& [rank, until] : departed_.until) {
    if (now >= until) {
      on_silent(rank);
    } else {
      open_.due_at(until);
    }
  }
  const std::vector<int> waiting = open_.cycle(rank_);
  const auto cycle_of = [&waiting](const Message& message) {
    const bool is_in_it = waiting.size() > 1 && waiting[1] == message.peer;
    return is_in_it ? waiting : std::vector<int>{};
  };
  std::vector<Message*> overdue;
  for (Message* message : open_) {
    if (now >= message->deadline) {
      overdue.push_back(message);
      continue;
    }
    if (now >= message->warn_at) {
      warnings_.push_back(waits_long(*message, cycle_of(*message)));
      message->warn_at = base::Time::max();
    }
    open_.note_deadline(*message);
  }
  for (Message* message : overdue) give_up(*message, expired(*message, cycle_of(*message), departed_));
}

}  // namespace kolo::p2p
