// SPDX-License-Identifier: Apache-2.0
//
// Point to point: what an engine adds to data/p2p/messenger.hpp is who moves messages when, and how to wait.
//
// A thread inside a synchronous call looks for as long as a peer takes that is on its way, or data moves, without the
// driver's place.
// After that the message becomes an operation, and the thread waits as for any other one: it drives, then it sleeps.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "data/p2p/sentences.hpp"
#include "engine/engine.hpp"

namespace kolo::engine {
namespace {

/// As for unnamed calls: every rank that shares this CPU should have had it once.
constexpr int kTurnsOfPeers = 64;
/// While a thread pauses it keeps other threads of its rank from moving messages; they end that.
constexpr int kPausesALook = 8;
/// A look that moves a message moves so much of it or more. Some more looks may have moved other messages alone.
constexpr std::uint64_t kLeastMove = 16 << 10;
constexpr std::uint64_t kMovesOfOthers = 64;
/// How often who is about to sleep moves what has come meanwhile, before another pass has to: waking a thread for it
/// takes longer.
constexpr int kTurnsBeforeRing = 8;
/// How long a rank that gives up waits for a better reason.
constexpr std::chrono::milliseconds kHearing{10};

}  // namespace

void Engine::transfer(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout) {
  check_usable();
  check_may_wait();
  const bool leaves_node = std::any_of(messages.begin(), messages.end(),
                                       [this](const p2p::Message* message) { return messages_.leaves_node(*message); });
  bool done = true;
  try {
    if (leaves_node) {
      for (p2p::Message* message : messages) done &= messages_.start(*message);
    } else {
      done =
          messages_.start(messages, pauses_a_look()) ||
          std::all_of(messages.begin(), messages.end(), [this](p2p::Message* message) { return look_out(*message); });
    }
  } catch (const Error& error) {  // a peer has written what no peer writes, or there is no memory for what it has sent
    // They have begun: nothing else throws such an error.
    for (p2p::Message* message : messages) messages_.give_up(*message, error.status());
    give_up(std::string(error.status().message()));
  } catch (...) {  // no memory: the caller's messages go with this call
    give_up(messages);
    throw;
  }
  if (done) return look_after_others();
  wait_for(messages, timeout);
}

/// This rank cannot move messages any more: a fatal error. If it hears of a better reason meanwhile, such as a peer's
/// death, that one is taken.
void Engine::give_up(const std::string& reason) {
  const auto is_over = [this] { return faulted(); };
  help_until(is_over, base::now() + kHearing);
  if (!faulted()) {
    driver_.take_over();
    const HandOver after(*this);
    announce_fault(ErrorCode::transport, reason);
  }
  while (!faulted()) help_until(is_over, base::now() + kHearing);
  check_usable();
}

/// For want of memory. Those that are done, or have not begun, are left alone.
void Engine::give_up(Span<p2p::Message* const> messages) {
  for (p2p::Message* message : messages) messages_.give_up(*message, p2p::no_memory());
}

/// A thread whose messages are done has moved others', or leaves them open.
void Engine::look_after_others() {
  if (messages_.has_news()) {
    tell_driver();
  } else if (messages_.is_busy()) {
    look_soon();
  }
}

/// For messages that this thread has started, two at most.
void Engine::wait_for(Span<p2p::Message* const> messages, std::optional<std::chrono::nanoseconds> timeout) {
  std::array<std::shared_ptr<MessageOperation>, 2> operations;
  try {
    for (std::size_t i = 0; i < messages.size(); ++i) operations[i] = std::make_shared<MessageOperation>();
  } catch (...) {
    give_up(messages);
    throw;
  }
  std::array<Operation*, 2> open{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    MessageOperation& operation = *operations[i];
    operation.message = messages[i];
    operation.engine = weak_from_this();
    operation.self = operations[i];
    if (adopt(*messages[i], &operation, timeout)) {
      open[count++] = &operation;
    } else {
      operation.self.reset();
    }
  }
  wait_all(Span<Operation* const>(open.data(), count), std::nullopt);
}

/// Looks for as long as a peer that is on its way takes, and for as long as data moves; whether the message is done.
/// This thread keeps its CPU while data moves. Otherwise two ranks that read messages on one CPU would take turns, and
/// end together; until then the ranks of the other CPU, who read the answers, would have nothing to do.
bool Engine::look_out(p2p::Message& message) {
  using Look = p2p::Messenger::Look;
  const int pauses = pauses_a_look();
  int looks = pauses > 0 ? wait_policy_.pauses / pauses : kTurnsOfPeers;
  std::uint64_t moves = kMovesOfOthers + message.bytes / kLeastMove;
  if (messages_.has_news()) tell_driver();  // that others' messages have ended
  while (looks > 0 && moves > 0) {
    const Look look = messages_.look(message, pauses);
    if (look == Look::done) return true;
    for (int yields = kTurnsOfPeers; yields > 0 && messages_.is_awaited(); --yields) std::this_thread::yield();
    if (look == Look::moved) {
      --moves;
      if (messages_.has_news()) tell_driver();
    } else {
      --looks;
      if (pauses == 0) std::this_thread::yield();
    }
  }
  return false;
}

/// How often who has a CPU of its own pauses for a message before it looks for whatever else there is to move.
int Engine::pauses_a_look() const noexcept { return std::min(wait_policy_.pauses, kPausesALook); }

void Engine::transfer(Span<const std::shared_ptr<MessageOperation>> operations,
                      std::optional<std::chrono::nanoseconds> timeout) {
  check_usable();
  check_may_wait();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    try {
      submit_message(operations[i], timeout);
    } catch (...) {  // the memory of those before goes with this call
      for (std::size_t j = 0; j < i; ++j) end_now(*operations[j], "another message of this call could not begin");
      throw;
    }
  }
  for (const auto& operation : operations) wait(*operation, std::nullopt);
}

/// From now on the driver completes it; false: it is done.
bool Engine::adopt(p2p::Message& message, MessageOperation* owner, std::optional<std::chrono::nanoseconds> timeout) {
  return messages_.hand_over(message, owner, base::now(), timeout.value_or(patience().usual), patience().warn_after);
}

void Engine::submit_message(const std::shared_ptr<MessageOperation>& operation,
                            std::optional<std::chrono::nanoseconds> timeout) {
  check_usable();
  p2p::Message& message = *operation->message;
  operation->engine = weak_from_this();
  operation->self = operation;
  const bool done = messages_.start(message);
  const bool is_open = !done && adopt(message, operation.get(), timeout);
  // On a device the driver goes on: with the data of a send, and with a receive that has its message already.
  if (operation->host != nullptr && is_open == (message.way == p2p::Message::Way::send)) {
    push({Command::copy, operation});
    return driver_.ring_if_asleep();
  }
  if (!is_open) {
    operation->self.reset();
    bool was_interesting = false;
    operation->complete(message.status, was_interesting);  // nobody has it yet
  }
  if (messages_.has_news() || (messages_.is_busy() && messages_.leaves_node(message))) return tell_driver();
  if (messages_.is_busy()) look_soon();
}

OperationPtr Engine::try_send(const p2p::Message& message) {
  check_usable();
  return messages_.try_send(message) ? sent_ : nullptr;
}

/// Messages of this node are open that nobody looks at, perhaps. What could be done for them has been. Peers are not
/// asked to ring yet, for this thread often waits soon, and looks itself: the background thread looks after a nap, and
/// has them ring from then on.
void Engine::look_soon() {
  if (!driver_.nobody_looks()) return;
  if (!driver_.try_look()) return driver_.ring_if_asleep();
  driver_.nap(base::now() + kNap);
  driver_.look_away();
}

/// A pass has something to do: this thread makes it, where nobody else does.
void Engine::tell_driver() {
  if (!driver_.nobody_looks()) return;
  if (device_moves()) return driver_.ring_if_asleep();
  if (!driver_.try_take()) return driver_.ring_if_asleep();
  progress();
  hand_over(false);
}

bool Engine::cancel(Operation& receive) {
  if (receive.done() || !messages_.cancel(*receive.message)) return false;
  tell_driver();  // that it has ended
  return true;
}

// ---------------------------------------------------------------- the driver

/// A message of a device has reached the driver: a send, or a receive that was done at once.
void Engine::admit_message(MessageOperation& operation) {
  if (operation.done()) return;  // it has ended meanwhile
  if (operation.message->way == p2p::Message::Way::receive) return end_message_of(operation);
  if (!faulted() && !ending_.is_stopped()) device_messages_.begin(operation);
}

/// Between the device and the memory of messages. The background thread alone gives work to a device.
bool Engine::move_copies() {
  if (!driver_.in_background() || !failure_.spares_backends()) return false;
  return device_messages_.move([this](MessageOperation& operation) {
    driver_.assert_held();
    const data::DeviceCopy& copy = operation.copy;
    const OperationPtr held = operation.self;
    if (copy.end) {
      for (auto& callback : operation.set_enqueued(copy.end)) errands_.call(std::move(callback), Status());
    }
    if (copy.way == data::DeviceCopy::Way::to_host && !operation.has_ended) {
      if (!copy.status.ok()) return messages_.give_up(*operation.message, copy.status);
      return messages_.provide(*operation.message, copy.copied);
    }
    if (copy.over) complete_message(operation, copy.status.ok() ? operation.message->status : copy.status);
  });
}

bool Engine::move_messages(base::Time now) {
  bool moved = false;
  std::vector<std::string> warnings;
  if (messages_.is_busy() && failure_.spares_backends()) moved = messages_.progress(now, warnings);
  for (std::string& warning : warnings) {
    ++metrics_.stalls;
    errands_.log(LogLevel::warning, std::move(warning));
  }
  return settle_messages() || moved;
}

bool Engine::settle_messages() {
  if (!messages_.has_news()) return false;
  changes_.note();
  for (p2p::Message* message : messages_.take_done()) {
    end_message_of(*static_cast<MessageOperation*>(message->owner));
  }
  return true;
}

/// The protocol has done with its message.
void Engine::end_message_of(MessageOperation& operation) {
  const Status& status = operation.message->status;
  if (status.code() == ErrorCode::rank_lost) ending_.note_desertion();
  if (device_messages_.keeps(operation, !faulted() && !ending_.is_stopped())) return;
  complete_message(operation, status.ok() && operation.lacks_data() ? end_of_all() : status);
}

/// How what is open ends, where all of it does.
Status Engine::end_of_all() const {
  if (faulted()) return failure_.status();
  return Status(ErrorCode::shut_down, "the context was shut down before this operation completed");
}

void Engine::complete_message(MessageOperation& operation, const Status& status) {
  changes_.note();
  const OperationPtr held = std::move(operation.self);
  if (!status.ok()) ++metrics_.failures;
  bool was_interesting = false;
  auto callbacks = operation.complete(status, was_interesting);
  // Now the caller may take the message away, and its status.
  for (auto& callback : callbacks) errands_.call(std::move(callback), operation.outcome());
  if (was_interesting) interest_.note_met();
}

/// Has peers ring when messages can go on. False: some can already.
bool Engine::arm_messages() noexcept {
  if (!messages_.is_busy() && !messages_.has_news()) return true;
  if (!failure_.spares_backends()) return !messages_.has_news();
  bool armed = false;
  for (int turn = 0; !armed && turn < kTurnsBeforeRing; ++turn) {
    armed = !guarded([this]() KOLO_REQUIRES(driver_.mutex()) { return !messages_.arm(); });
    if (!settle_messages()) continue;
    settle_pass();
    armed = false;  // what has ended may have left nothing to be rung for
  }
  return armed && errands_.empty() && !device_messages_.has_fresh();
}

}  // namespace kolo::engine
