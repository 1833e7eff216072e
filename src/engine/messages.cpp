// SPDX-License-Identifier: Apache-2.0
#include "engine/messages.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "data/p2p/message_sentences.hpp"
#include "engine/driving.hpp"

namespace kolo::engine {
namespace {

/// As for unnamed calls: every rank that shares this CPU should have had it once.
constexpr int kYieldsToPeers = 64;
/// While a thread pauses it keeps other threads of its rank from moving messages; they end that.
constexpr int kPausesALook = 8;
/// A look that moves a message moves so much of it or more. Some more looks may have moved other messages alone.
constexpr std::uint64_t kLeastMove = 16 << 10;
constexpr std::uint64_t kMovesOfOthers = 64;
/// How often a thread that is about to sleep moves what has come meanwhile, before it leaves that to another pass:
/// waking a thread takes longer.
constexpr int kLooksBeforeRing = 8;
/// How long a rank that gives up waits for a better reason.
constexpr std::chrono::milliseconds kHearing{10};

/// By which the recorder knows a message while it is open.
std::uint64_t id_of(const p2p::Message& message) noexcept { return reinterpret_cast<std::uintptr_t>(&message); }

/// The two halves of one call.
void tie(MessageOperation& one, MessageOperation& other) noexcept {
  one.half = &other;
  other.half = &one;
}

void record_open(recorder::Recorder& recorder, const p2p::Message& message) noexcept {
  const std::uint32_t peer = message.peer == p2p::kAny ? recorder::kAnyRank : static_cast<std::uint32_t>(message.peer);
  recorder.record_caller(recorder::Kind::message_open, peer, id_of(message), static_cast<std::uint32_t>(message.tag),
                         recorder::saturated(message.bytes), message.role == p2p::Message::Role::send ? 1 : 0);
}

void record_end(recorder::Recorder& recorder, const p2p::Message& message) noexcept {
  recorder.record_caller(recorder::Kind::message_ended, 0, id_of(message), 0, 0,
                         static_cast<std::uint8_t>(message.status.code()));
}

/// Because another rank has left. The driver's.
void record_failure(recorder::Recorder& recorder, const Status& status) {
  if (status.code() != ErrorCode::rank_lost) return;
  recorder.record(recorder::Kind::failed, 0, 0, 0, 0, static_cast<std::uint8_t>(status.code()));
  recorder.sentence(status.message());
}

}  // namespace

void Messages::make_sent() {
  sent_ = std::make_shared<MessageOperation>();
  driving_.give_engine(*sent_);
  sent_->message = &sent_->own;
  bool was_awaited = false;
  sent_->complete({}, was_awaited);
}

void Messages::transfer(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout) {
  engine_.ending.check_usable();
  driving_.check_may_wait();
  const bool leaves_node = std::any_of(messages.begin(), messages.end(), [this](const p2p::Message* message) {
    return engine_.messenger.leaves_node(*message);
  });
  bool done = true;
  try {
    if (leaves_node) {
      for (p2p::Message* message : messages) done &= engine_.messenger.start(*message);
    } else {
      done =
          engine_.messenger.start(messages, pauses_a_look()) ||
          std::all_of(messages.begin(), messages.end(), [this](p2p::Message* message) { return look_out(*message); });
    }
  } catch (const Error& error) {  // a peer has written what no peer writes, or there is no memory for what it has sent
    // The messages have begun, because nothing else throws such an error.
    for (p2p::Message* message : messages) engine_.messenger.give_up(*message, error.status());
    give_up(std::string(error.status().message()));
  } catch (...) {  // no memory: the caller's messages go with this call
    give_up(messages);
    throw;
  }
  if (done) {
    for (const p2p::Message* message : messages) note_ended_here(*message);
    return look_after_others();
  }
  wait_for(messages, timeout);
}

/// This rank cannot move messages any more: a fatal error. If it hears of a better reason meanwhile, such as a peer's
/// death, that one is taken.
void Messages::give_up(const std::string& reason) {
  const auto is_over = [this] { return engine_.ending.faulted(); };
  driving_.help_until(is_over, base::now() + kHearing);
  if (!engine_.ending.faulted()) {
    engine_.driver.take_over();
    const Driving::HandOver after(driving_);
    engine_.ending.report(ErrorCode::transport, reason);
  }
  while (!engine_.ending.faulted()) driving_.help_until(is_over, base::now() + kHearing);
  engine_.ending.check_usable();
}

/// For want of memory. Those that are done, or have not begun, are left alone.
void Messages::give_up(Span<p2p::Message* const> messages) {
  for (p2p::Message* message : messages) engine_.messenger.give_up(*message, p2p::no_memory());
}

/// A message has ended on the thread that made the call, and no driver has seen it: what its end says of other ranks,
/// and of the other half of the call, if that is still open.
void Messages::note_ended_here(const p2p::Message& message, const MessageOperation* half) {
  const bool says_nothing = message.status.ok() && !engine_.ending.is_deserted();
  if (says_nothing || engine_.ending.faulted()) return;
  engine_.driver.take_over();
  const Driving::HandOver after(driving_);
  engine_.recorder->at(base::now());
  note_end(message, base::now());
  record_failure(*engine_.recorder, message.status);
  if (half != nullptr) give_up_half(*half, message.status);
}

/// The other message of the call has ended by this status.
void Messages::give_up_half(const MessageOperation& half, const Status& status) {
  if (status.code() != ErrorCode::rank_lost || engine_.ending.faulted() || !engine_.ending.is_deserted()) return;
  engine_.messenger.give_up(*half.message, status, engine_.ending.deserted_by());
}

/// A thread whose messages are done has moved others', or leaves them open.
void Messages::look_after_others() {
  if (engine_.messenger.has_news()) {
    driving_.pass_now();
  } else if (engine_.messenger.is_busy()) {
    look_soon();
  }
}

/// For messages that this thread has started, two at most.
void Messages::wait_for(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout) {
  std::array<std::shared_ptr<MessageOperation>, 2> operations;
  try {
    for (std::size_t i = 0; i < messages.size(); ++i) operations[i] = std::make_shared<MessageOperation>();
  } catch (...) {
    give_up(messages);
    throw;
  }
  if (messages.size() == 2) tie(*operations[0], *operations[1]);
  std::array<Operation*, 2> open{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) operations[i]->message = messages[i];
  for (std::size_t i = 0; i < messages.size(); ++i) {
    MessageOperation& operation = *operations[i];
    driving_.give_engine(operation);
    operation.self = operations[i];
    if (hand_over(*messages[i], &operation, timeout)) {
      open[count++] = &operation;
    } else {
      operation.self.reset();
      note_ended_here(*messages[i], operation.half);
    }
  }
  driving_.wait_all(Span<Operation* const>(open.data(), count), std::nullopt);
}

/// Looks for as long as a peer that is on its way takes, and for as long as data moves; whether the message is done.
/// This thread keeps its CPU while data moves. Otherwise two ranks that read messages on one CPU would take turns, and
/// end together; until then the ranks of the other CPU, who read the answers, would have nothing to do.
bool Messages::look_out(p2p::Message& message) {
  using Look = p2p::Messenger::Look;
  const int pauses = pauses_a_look();
  int looks = pauses > 0 ? engine_.wait_policy.pauses / pauses : kYieldsToPeers;
  std::uint64_t moves = kMovesOfOthers + message.bytes / kLeastMove;
  if (engine_.messenger.has_news()) driving_.pass_now();  // that others' messages have ended
  while (looks > 0 && moves > 0) {
    const Look look = engine_.messenger.look(message, pauses);
    if (look == Look::done) return true;
    for (int yields = kYieldsToPeers; yields > 0 && engine_.messenger.is_awaited(); --yields) std::this_thread::yield();
    if (look == Look::moved) {
      --moves;
      if (engine_.messenger.has_news()) driving_.pass_now();
    } else {
      --looks;
      if (pauses == 0) std::this_thread::yield();
    }
  }
  return false;
}

/// How often who has a CPU of its own pauses for a message before it looks for whatever else there is to move.
int Messages::pauses_a_look() const noexcept { return std::min(engine_.wait_policy.pauses, kPausesALook); }

void Messages::transfer(Span<const std::shared_ptr<MessageOperation>> operations,
                        std::optional<std::chrono::nanoseconds> timeout) {
  engine_.ending.check_usable();
  driving_.check_may_wait();
  if (operations.size() == 2) tie(*operations[0], *operations[1]);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    try {
      submit(operations[i], timeout);
    } catch (...) {  // the memory of those before goes with this call
      for (std::size_t j = 0; j < i; ++j)
        driving_.end_now(*operations[j], "another message of this call could not begin");
      throw;
    }
  }
  for (const auto& operation : operations) driving_.wait(*operation, std::nullopt);
}

/// From now on the driver completes it; false: it is done.
bool Messages::hand_over(p2p::Message& message, MessageOperation* owner,
                         std::optional<std::chrono::nanoseconds> timeout) {
  record_open(*engine_.recorder, message);
  const bool is_open = engine_.messenger.hand_over(
      message, owner, base::now(), timeout.value_or(engine_.open.patience.usual), engine_.open.patience.warn_after);
  if (!is_open) record_end(*engine_.recorder, message);
  return is_open;
}

void Messages::submit(const std::shared_ptr<MessageOperation>& operation,
                      std::optional<std::chrono::nanoseconds> timeout) {
  engine_.ending.check_usable();
  p2p::Message& message = *operation->message;
  driving_.give_engine(*operation);
  operation->self = operation;
  if (operation->host != nullptr) {
    submit_of_device(*operation, timeout);
    return see_to(message);
  }
  const bool done = engine_.messenger.start(message);
  const bool is_open = !done && hand_over(message, operation.get(), timeout);
  if (!is_open) {
    operation->self.reset();
    note_ended_here(message);
    bool was_awaited = false;
    operation->complete(message.status, was_awaited);  // nobody has it yet
  }
  see_to(message);
}

/// It has its owner from the beginning, so that the driver hears of its end in the order of all ends, and goes on: with
/// the data, or with the call that it has become.
void Messages::submit_of_device(MessageOperation& operation, std::optional<std::chrono::nanoseconds> timeout) {
  p2p::Message& message = *operation.message;
  record_open(*engine_.recorder, message);
  message.owner = &operation;
  message.begun = base::now();
  message.patience = timeout.value_or(engine_.open.patience.usual);
  message.deadline = base::after(message.begun, message.patience);
  message.warn_at = base::after(message.begun, engine_.open.patience.warn_after);
  try {
    engine_.messenger.start(message);
  } catch (...) {
    if (message.state == p2p::Message::State::fresh) operation.self.reset();  // it has not begun; else its end is told
    throw;
  }
}

/// The message has begun, and this thread goes on.
void Messages::see_to(const p2p::Message& message) {
  if (engine_.messenger.has_news() || (engine_.messenger.is_busy() && engine_.messenger.leaves_node(message)))
    return driving_.pass_now();
  if (engine_.messenger.is_busy()) look_soon();
}

OperationPtr Messages::try_send(const p2p::Message& message) {
  engine_.ending.check_usable();
  return engine_.messenger.try_send(message) ? sent_ : nullptr;
}

/// Messages of this node are open, and perhaps no thread looks at them. Peers are not asked to ring yet, because this
/// thread often waits soon and looks itself. The background thread looks after a nap, and asks peers to ring from then
/// on.
void Messages::look_soon() {
  if (!engine_.driver.nobody_looks()) return;
  if (!engine_.driver.try_look()) return engine_.driver.ring_if_asleep();
  engine_.driver.nap(base::now() + Driving::kNap);
  engine_.driver.look_away();
}

bool Messages::cancel(Operation& receive) {
  if (receive.done() || !engine_.messenger.cancel(*receive.message)) return false;
  driving_.pass_now();  // that it has ended
  return true;
}

// ---------------------------------------------------------------- the driver

/// Between the device and the memory of messages.
bool Messages::move_copies() {
  if (!engine_.ending.may_use_backends()) return false;
  return copies_.move([this](MessageOperation& operation) {
    Driver::assert_held();
    const data::DeviceCopy& copy = operation.copy;
    const OperationPtr held = operation.self;
    if (copy.end) {
      for (auto& callback : operation.set_enqueued(copy.end)) engine_.deferred.call(std::move(callback), Status());
    }
    if (copy.direction == data::DeviceCopy::Direction::to_host && !operation.has_ended) {
      if (!copy.status.ok()) return engine_.messenger.give_up(*operation.message, copy.status);
      return engine_.messenger.provide(*operation.message, copy.copied);
    }
    if (copy.over) complete(operation, copy.status.ok() ? operation.message->status : copy.status);
  });
}

bool Messages::move_open(base::Time now) {
  bool moved = move_copies();
  std::vector<std::string> warnings;
  if (engine_.messenger.is_busy() && engine_.ending.may_use_backends())
    moved |= engine_.messenger.progress(now, warnings);
  for (std::string& warning : warnings) {
    ++engine_.tally.stalls;
    engine_.deferred.log(LogLevel::warning, std::move(warning));
  }
  moved |= take_ended();
  if (pairs_.is_busy() && engine_.ending.may_use_backends()) moved |= pairs_.move(driving_.mailbox());
  return moved;
}

bool Messages::take_ended() {
  if (!engine_.messenger.has_news()) return false;
  engine_.open.waiters.note_change();
  const bool may_begin = !engine_.ending.faulted() && !engine_.ending.is_stopped();
  const p2p::News& news = engine_.messenger.take_news();
  if (may_begin) {
    for (const p2p::Direction& direction : news.met) pairs_.introduce(direction);
    for (const p2p::Message* send : news.late) copies_.begin(*static_cast<MessageOperation*>(send->owner));
  }
  for (p2p::Message* message : news.done) {
    if (message->way == p2p::Way::device && message->status.ok() && may_begin) {
      give_to_device(*message);
    } else if (message->owner != nullptr) {
      end(*static_cast<MessageOperation*>(message->owner));
    }
  }
  return true;
}

/// Both ranks have agreed on it: from here on it is a call in the log. Without an owner it is one of nothing.
void Messages::give_to_device(p2p::Message& message) {
  const int own = engine_.topology.rank;
  const bool sends = message.role == p2p::Message::Role::send;
  const p2p::Direction direction = sends ? p2p::Direction{own, message.peer} : p2p::Direction{message.source, own};
  if (message.owner == nullptr) return pairs_.call(direction, std::make_shared<Operation>(), nullptr, 0);
  auto& operation = *static_cast<MessageOperation*>(message.owner);
  record_end(*engine_.recorder, message);
  operation.host.reset();
  // Which ends the job, as that of a collective.
  operation.timeout = std::max<std::chrono::nanoseconds>(message.patience, engine_.open.patience.usual);
  if (operation.copy.ready) operation.ready = {std::move(operation.copy.ready)};
  pairs_.call(direction, std::move(operation.self), operation.copy.on_device,
              sends ? message.bytes : message.received_bytes);
}

/// The protocol has done with its message.
void Messages::end(MessageOperation& operation) {
  const Status& status = operation.message->status;
  note_end(*operation.message, operation.message->begun);
  if (copies_.keeps(operation, !engine_.ending.faulted() && !engine_.ending.is_stopped())) return;
  const bool lacks_data = operation.lacks_data() || operation.message->way == p2p::Way::device;
  complete(operation, status.ok() && lacks_data ? engine_.ending.end_of_all() : status);
}

/// What the end of a message that began then says of other ranks. A send may succeed though nobody is there any more.
void Messages::note_end(const p2p::Message& message, base::Time begun) {
  const bool sends = message.role == p2p::Message::Role::send;
  if (message.status.ok() && !sends) engine_.ending.note_success(begun);
  const bool lost = message.status.code() == ErrorCode::rank_lost;
  const int peer = !sends && message.source != p2p::kAny ? message.source : message.peer;
  if (lost && message.deserted_by >= 0) return engine_.note_desertion(message.deserted_by);
  if (lost && peer != p2p::kAny) return engine_.note_desertion(peer);
  // It may have waited for a rank that has left: a receive from any rank, also if others could still have sent; another
  // message, because its peer waited for that rank. One with a shorter deadline of its own only asks whether there is a
  // message: its end is no failure.
  const bool waited = message.status.code() == ErrorCode::expired && message.patience >= engine_.open.patience.usual;
  if (!lost && !waited) return;
  const std::vector<int> world;
  const int left = engine_.participant.earliest_to_leave(message.members != nullptr ? *message.members : world);
  if (left >= 0) engine_.note_desertion(left);
}

void Messages::complete(MessageOperation& operation, const Status& status) {
  engine_.open.waiters.note_change();
  if (operation.half != nullptr) give_up_half(*operation.half, status);
  const OperationPtr held = std::move(operation.self);
  record_end(*engine_.recorder, *operation.message);
  if (!status.ok()) ++engine_.tally.failures;
  record_failure(*engine_.recorder, status);
  bool was_awaited = false;
  auto callbacks = operation.complete(status, was_awaited);
  // From here on the caller may destroy the message and its status.
  for (auto& callback : callbacks) engine_.deferred.call(std::move(callback), operation.outcome());
  if (was_awaited) engine_.open.waiters.note_done();
}

void Messages::close(const Status& status) {
  engine_.messenger.close(status);
  take_ended();
}

void Messages::fail(const Status& status) {
  for (MessageOperation* operation : copies_.take()) complete(*operation, status);
  for (const OperationPtr& operation : pairs_.take()) {
    auto& call = static_cast<MessageOperation&>(*operation);
    call.self = operation;
    complete(call, status);
  }
  close(status);
}

bool Messages::arm_open() noexcept {
  if (!engine_.ending.may_use_backends()) return !engine_.messenger.has_news();
  bool armed = false;
  for (int look = 0; !armed && look < kLooksBeforeRing; ++look) {
    armed = !driving_.guarded([this]() KOLO_REQUIRES(kDriving) { return !engine_.messenger.arm(); });
    if (!take_ended()) continue;
    driving_.end_pass();
    armed = false;  // what has ended may have left nothing to be rung for
  }
  return armed && engine_.deferred.empty() && !copies_.has_fresh();
}

void DeviceMessages::begin(MessageOperation& operation) {
  operation.is_copying = true;
  copying_.push_back(&operation);
  has_fresh_ = true;
  operation.copy.cookie = &operation;
  device_->start(operation.copy);
  open_.store(copying_.size(), std::memory_order_release);
}

void DeviceMessages::forget(MessageOperation& operation) {
  operation.is_copying = false;
  copying_.erase(std::find(copying_.begin(), copying_.end(), &operation));
  open_.store(copying_.size(), std::memory_order_release);
}

bool DeviceMessages::keeps(MessageOperation& operation, bool may_be_used) {
  operation.has_ended = true;
  if (!may_be_used) return operation.is_copying;
  if (operation.message->status.ok() && operation.lacks_data()) {
    operation.copy.bytes = operation.message->received_bytes;
    begin(operation);
  } else if (operation.is_copying) {
    device_->stop(operation.copy);
    if (operation.copy.over) forget(operation);
  }
  return operation.is_copying;
}

std::vector<MessageOperation*> DeviceMessages::take() {
  std::vector<MessageOperation*> ended;
  for (MessageOperation* operation : std::exchange(copying_, {})) {
    operation->is_copying = false;
    if (operation->has_ended) ended.push_back(operation);
  }
  open_.store(0, std::memory_order_release);
  return ended;
}

bool DeviceMessages::uses(const std::byte* begin, std::size_t bytes) const noexcept {
  return std::any_of(copying_.begin(), copying_.end(), [&](const MessageOperation* operation) {
    const std::byte* tensor = operation->copy.on_device;
    return tensor >= begin && tensor < begin + bytes;
  });
}

}  // namespace kolo::engine
