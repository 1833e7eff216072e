// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/protocol.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "core/dtype.hpp"
#include "data/p2p/sentences.hpp"

namespace kolo::p2p {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

template <class Container, class Value>
void erase_one(Container& container, const Value& value) {
  const auto found = std::find(container.begin(), container.end(), value);
  if (found != container.end()) container.erase(found);
}

}  // namespace

// ---------------------------------------------------------------- calls

void Protocol::start(Message& message) {
  if (open_.empty()) note_wait(Channels::kNobody);
  message.open_index = open_.size();
  open_.push_back(&message);
  message.state = Message::State::waiting;
  note_deadline(message);
  if (!closed_.ok()) return end(message, closed_);
  try {
    message.way == Message::Way::send ? start_send(message) : start_receive(message);
  } catch (...) {  // no memory: the message goes with the call
    give_up(message, no_memory());
    throw;
  }
}

void Protocol::send_to_self(Message& send) {
  Frame frame = head_of(send);
  if (Message* receive = matching_.find(frame, rank_)) return take_own(*receive, send, frame);
  Arrival arrival{frame, rank_, nullptr, nullptr};
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
    return end(send, keeps_too_much(rank_, kept.messages + 1, matching_.kept().bytes + arrival.cost()));
  }
  matching_.keep(std::move(arrival));
  end(send);
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
  if (left_.count(source) > 0) return true;  // it sends nothing more
  return std::any_of(open_.begin(), open_.end(),
                     [source](const Message* message) { return message->peer == source || message->peer == kAny; });
}

void Protocol::start_receive(Message& receive) {
  const std::optional<Arrival> arrival = matching_.post(receive);
  if (!arrival) {
    if (!left_.empty()) receive_nothing_from(receive.peer);
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
  end(receive, cancelled(receive));
  return true;
}

void Protocol::give_up(Message& message, const Status& status) {
  if (message.done() || message.state == Message::State::fresh) return;
  try {
    detach(message);
  } catch (const std::bad_alloc&) {  // the other side is not told, and its deadline ends its part
  }
  end(message, status);
}

void Protocol::close(const Status& status) {
  if (!closed_.ok()) return;
  closed_ = status;
  for (Message* message : open_) {
    if (message->way == Message::Way::send && message->permit != 0) channels_.end(message->permit);
  }
  for (std::unique_ptr<Outgoing>& to : outgoing_) to.reset();
  busy_.clear();
  announced_.clear();
  incoming_.clear();
  for (Message* receive : reading_) end_reading(*receive);
  reading_.clear();
  helping_.clear();
  matching_.clear();
  while (!open_.empty()) end(*open_.back(), status);
}

/// Takes an open message out of everything that knows it, and tells the other side.
void Protocol::detach(Message& message) {
  if (Message* partner = std::exchange(message.partner, nullptr)) {
    partner->partner = nullptr;
    return end(*partner, given_up_there(*partner));
  }
  const auto refuse = [&] {
    Frame frame;
    frame.kind = FrameKind::refused;
    frame.id = message.id;
    frame.refusal = Refusal::given_up;
    answer(message.source, frame);
  };
  if (message.way == Message::Way::receive) {
    if (message.state == Message::State::waiting) {
      matching_.remove(message);
      return;
    }
    incoming_.erase({message.source, message.id});
    erase_one(reading_, &message);
    end_reading(message);
    refuse();
    return;
  }
  if (message.peer == rank_) {
    matching_.remove(rank_, message.id);
    return;
  }
  Outgoing& to = outgoing(message.peer);
  end_permit(message);
  if (message.state == Message::State::waiting) {
    erase_one(to.beginning, &message);
    return;
  }
  erase_one(to.wanted, &message);
  announced_.erase(message.id);
  answer(message.peer, FrameKind::withdrawn, message.id);
}

/// Nobody reads a send's memory any more, and this rank writes none of it to the receiver.
void Protocol::end_permit(Message& send) noexcept {
  if (send.ticket != 0) erase_one(helping_, &send);
  send.ticket = 0;
  if (send.permit != 0) channels_.end(std::exchange(send.permit, 0));
}

void Protocol::end(Message& message, const Status& status) {
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

void Protocol::count(const Message& message) noexcept {
  if (message.way == Message::Way::send) {
    ++counters_.sent;
    counters_.bytes_sent += message.bytes;
  } else {
    ++counters_.received;
    counters_.bytes_received += message.received_bytes;
  }
}

// ---------------------------------------------------------------- what is heard

void Protocol::on_set(std::uint64_t set) {
  sets_.insert(set);
  last_set_ = std::max(last_set_, set);
}

/// Receives of the set may still match what is on its way. What waits for a receive waits in vain.
void Protocol::on_set_gone(std::uint64_t set) {
  sets_.erase(set);
  while (std::optional<Arrival> arrival = matching_.take_of_set(set)) {
    if (arrival->own != nullptr) {
      end(*arrival->own, set_gone_there(*arrival->own));
    } else if (arrival->frame.kind == FrameKind::announced) {
      Frame frame;
      frame.kind = FrameKind::refused;
      frame.id = arrival->frame.id;
      frame.refusal = Refusal::set_gone;
      answer(arrival->source, frame);
    }
  }
}

/// Serial numbers rise. One that is not known yet is that of a set of which this rank has not read in the log so far.
bool Protocol::is_gone(std::uint64_t set) const { return set != 0 && set <= last_set_ && sets_.count(set) == 0; }

/// What the rank has said last comes first: it may have taken a message. This rank hears of itself, too, and waits for
/// the others as before.
void Protocol::on_left(int rank, base::Time until) {
  if (rank == rank_ || !closed_.ok() || !left_.emplace(rank, until).second) return;
  const bool is_here = until == base::Time::min();
  while (is_here && channels_.take(*this)) {
  }
  const std::vector<Message*> open = open_;
  for (Message* message : open) {
    if (message->way == Message::Way::send && message->peer == rank) give_up(*message, has_left(*message));
    if (message->is_withdrawn && message->source == rank) give_up(*message, has_left(*message));
  }
  end_unasked(rank);
  outgoing_[static_cast<std::size_t>(rank)].reset();
  busy_.erase(std::remove(busy_.begin(), busy_.end(), rank), busy_.end());
  if (is_here) {
    on_silent(rank);
  } else {
    next_due_ = std::min(next_due_, until);
  }
}

/// Ends receives whose data that rank has not been asked for yet, because its channel was full: nobody will ask.
void Protocol::end_unasked(int rank) {
  const std::unique_ptr<Outgoing>& to = outgoing_[static_cast<std::size_t>(rank)];
  if (!to) return;
  for (const Frame& frame : to->answers) {
    const auto found = frame.kind == FrameKind::wanted ? incoming_.find({rank, frame.id}) : incoming_.end();
    if (found == incoming_.end()) continue;
    Message& receive = *found->second;
    incoming_.erase(found);
    end(receive, has_left(receive));
  }
}

void Protocol::on_silent(int rank) {
  if (!silent_.insert(rank).second) return;
  receive_nothing_from(rank);
  receive_nothing_from(kAny);
}

/// Ends receives that wait for a rank that has left, or for any when all that could send have.
void Protocol::receive_nothing_from(int rank) {
  const auto is_silent = [&](int other) { return silent_.count(other) > 0; };
  const auto in_vain = [&](const Message& receive) {
    if (receive.peer != rank) return false;
    if (rank != kAny) return is_silent(rank);
    if (receive.members != nullptr) {
      return receive.members->size() > 1 &&
             std::all_of(receive.members->begin(), receive.members->end(),
                         [&](int member) { return member == rank_ || is_silent(member); });
    }
    return size_ > 1 && silent_.size() + 1 == static_cast<std::size_t>(size_);
  };
  std::vector<Message*> lost;
  for (Message* receive : matching_.posted()) {
    if (in_vain(*receive)) lost.push_back(receive);
  }
  for (Message* receive : lost) {
    matching_.remove(*receive);
    end(*receive, has_left(*receive));
  }
}

void Protocol::on_frame(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
  switch (frame.kind) {
  case FrameKind::whole:
    return on_whole(source, frame, data, bytes);
  case FrameKind::announced:
    return on_announced(source, frame);
  case FrameKind::part:
    return on_part(source, frame, data, bytes);
  case FrameKind::withdrawn:
    return on_withdrawn(source, frame.id);
  case FrameKind::wanted:
    return on_wanted(source, frame.id);
  case FrameKind::helped:
    return on_helped(source, frame.id, frame.permit);
  case FrameKind::taken:
    return on_taken(source, frame.id);
  case FrameKind::refused:
    return on_refused(source, frame);
  }
  throw Error(ErrorCode::transport, "rank " + std::to_string(source) + " sent a frame of kind " +
                                        std::to_string(static_cast<unsigned>(frame.kind)) + ", which does not exist");
}

void Protocol::on_whole(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
  if (frame.bytes != bytes || frame.dtype > core::kLastDType) {
    throw Error(ErrorCode::transport, "rank " + std::to_string(source) + " sent a message of " + std::to_string(bytes) +
                                          " bytes that says it has " + std::to_string(frame.bytes));
  }
  if (Message* receive = matching_.find(frame, source)) return take_whole(*receive, source, frame, data);
  if (is_gone(frame.set)) return;
  Arrival arrival{frame, source, std::make_unique_for_overwrite<std::byte[]>(bytes), nullptr};
  copy_bytes(arrival.data.get(), data, bytes);
  keep(std::move(arrival));
}

void Protocol::on_announced(int source, const Frame& frame) {
  if (frame.dtype > core::kLastDType) {
    throw Error(ErrorCode::transport, "rank " + std::to_string(source) + " announced a message of an unknown type");
  }
  if (Message* receive = matching_.find(frame, source)) return accept(*receive, source, frame);
  keep({frame, source, nullptr, nullptr});
  if (is_gone(frame.set)) on_set_gone(frame.set);
}

/// Whether a message may be written into the receive's buffer; else the receive is done.
bool Protocol::fits(Message& receive, int source, const Frame& frame) {
  receive.source = source;
  receive.received_tag = frame.tag;
  receive.received_bytes = frame.bytes;
  receive.id = frame.id;
  Frame refusal;
  refusal.kind = FrameKind::refused;
  refusal.id = frame.id;
  refusal.bytes = receive.bytes;
  refusal.dtype = receive.dtype;
  if (frame.dtype != receive.dtype) {
    refusal.refusal = Refusal::other_type;
    end(receive, other_type(receive, source, frame.tag, frame.dtype));
  } else if (frame.bytes > receive.bytes) {
    refusal.refusal = Refusal::too_long;
    end(receive, too_long(receive, source, frame.tag, frame.bytes));
  } else {
    return true;
  }
  if (frame.kind == FrameKind::announced && source != rank_) answer(source, refusal);
  return false;
}

void Protocol::take_whole(Message& receive, int source, const Frame& frame, const std::byte* data) {
  if (!fits(receive, source, frame)) return;
  copy_bytes(receive.data, data, frame.bytes);
  end(receive);
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
  end(send, frame.dtype != receive.dtype ? other_type_there(send, receive.dtype) : too_long_for(send, receive.bytes));
}

void Protocol::copy_own(Message& receive, Message& send) {
  receive.partner = send.partner = nullptr;
  if (send.bytes > 0) std::memmove(receive.data, send.data, send.bytes);  // a program may give the same memory
  end(receive);
  end(send);
}

void Protocol::accept(Message& receive, int source, const Frame& frame) {
  if (!fits(receive, source, frame)) return;
  receive.state = Message::State::moving;
  receive.permit = frame.permit;
  receive.address = frame.address;
  if (frame.permit != 0) return begin_reading(receive);
  incoming_[{source, frame.id}] = &receive;
  answer(source, FrameKind::wanted, frame.id);
}

void Protocol::on_part(int source, const Frame& frame, const std::byte* data, std::size_t bytes) {
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
  end(receive);
}

void Protocol::on_withdrawn(int source, std::uint64_t id) {
  if (matching_.remove(source, id)) return;
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
  end(*receive, given_up_there(*receive));
}

/// The send that a receiver's answer is about; null: it is no more.
Message* Protocol::find_answered(int source, std::uint64_t id) {
  const auto found = announced_.find(id);
  if (found == announced_.end()) return nullptr;
  if (found->second->peer == source) return found->second;
  throw Error(ErrorCode::transport, "rank " + std::to_string(source) + " answered a message that was sent to rank " +
                                        std::to_string(found->second->peer));
}

void Protocol::on_wanted(int source, std::uint64_t id) {
  Message* const send = find_answered(source, id);
  if (send == nullptr || send->state != Message::State::announced) return;
  end_permit(*send);  // the peer could not read
  send->state = Message::State::moving;
  if (send->there > 0) add_wanted(*send);  // else `provide` does
}

void Protocol::on_helped(int source, std::uint64_t id, Channels::Ticket ticket) {
  Message* const send = find_answered(source, id);
  if (send == nullptr || send->permit == 0 || send->ticket != 0 || ticket == 0) return;
  send->ticket = ticket;
  helping_.push_back(send);
}

void Protocol::on_taken(int source, std::uint64_t id) {
  Message* const send = find_answered(source, id);
  if (send == nullptr) return;
  if (send->permit == 0) {
    throw Error(ErrorCode::transport,
                "rank " + std::to_string(source) + " says that it has read a message that it may not read");
  }
  announced_.erase(id);
  end_permit(*send);
  end(*send);
}

void Protocol::on_refused(int source, const Frame& frame) {
  Message* const found = find_answered(source, frame.id);
  if (found == nullptr) return;
  Message& send = *found;
  announced_.erase(frame.id);
  end_permit(send);
  erase_one(outgoing(send.peer).wanted, &send);
  switch (frame.refusal) {
  case Refusal::too_long:
    return end(send, too_long_for(send, frame.bytes));
  case Refusal::other_type:
    return end(send, other_type_there(send, std::min(frame.dtype, core::kLastDType)));
  case Refusal::set_gone:
    return end(send, set_gone_there(send));
  case Refusal::none:
  case Refusal::given_up:
    break;
  }
  end(send, given_up_there(send));
}

bool Protocol::progress() {
  try {
    bool moved = channels_.take(*this);
    moved |= flush();
    moved |= read() || help();  // what is this rank's own first
    return moved;
  } catch (const std::bad_alloc&) {  // what has come is lost
    throw Error(ErrorCode::transport, "there is no memory left for messages");
  }
}

// ---------------------------------------------------------------- deadlines

void Protocol::note_wait() noexcept {
  const auto before = [](const Message* a, const Message* b) { return a->begun < b->begun; };
  const auto oldest = std::min_element(open_.begin(), open_.end(), before);
  if (oldest != open_.end()) note_wait((*oldest)->peer == kAny ? Channels::kNobody : (*oldest)->peer);
}

void Protocol::note_wait(int rank) noexcept {
  if (rank != noted_) channels_.note_wait(noted_ = rank);
}

/// The ranks that wait for each other, this one first; none where they do not, or this one cannot see it.
std::vector<int> Protocol::cycle() const {
  std::vector<int> ranks{rank_};
  for (int rank = channels_.wait_of(rank_); rank != Channels::kNobody; rank = channels_.wait_of(rank)) {
    if (rank == rank_) return ranks.size() > 1 ? ranks : std::vector<int>{};
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) break;
    ranks.push_back(rank);
  }
  return {};
}

void Protocol::expire(base::Time now) {
  if (now < next_due_) return;
  note_wait();
  next_due_ = base::Time::max();
  for (const auto& [rank, until] : left_) {
    if (now >= until) {
      on_silent(rank);
    } else {
      next_due_ = std::min(next_due_, until);
    }
  }
  const std::vector<int> waiting = cycle();
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
    note_deadline(*message);
  }
  for (Message* message : overdue) give_up(*message, expired(*message, cycle_of(*message)));
}

}  // namespace kolo::p2p
