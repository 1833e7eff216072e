// SPDX-License-Identifier: Apache-2.0
//
// Point to point: what an engine adds to data/p2p/messenger.hpp is who moves messages when, and how to wait.
//
// A thread inside a synchronous call looks for as long as a peer takes that is on its way, without the driver's place.
// After that the message becomes an operation, and the thread waits as for any other one: it drives, then it sleeps.
#include <utility>

#include "engine/engine.hpp"

namespace kolo::engine {
namespace {

/// As for unnamed calls: every rank that shares this CPU should have had a turn.
constexpr int kTurnsOfPeers = 64;
/// How often who is about to sleep moves what has come meanwhile, before another pass has to: waking a thread for it
/// takes longer.
constexpr int kTurnsBeforeRing = 8;
/// Reading so much takes a peer several times as long as waking a thread does.
constexpr std::uint64_t kLongRead = 2 << 20;

}  // namespace

void Engine::check_may_transfer(const p2p::Message& message) const {
  if (callers_ == nullptr || callers_->may_move_here() || !messages_.leaves_node(message)) return;
  throw Error(ErrorCode::unsupported, callers_->refusal());
}

void Engine::transfer(p2p::Message& message, std::optional<std::chrono::nanoseconds> timeout) {
  check_usable();
  check_may_wait();
  check_may_transfer(message);
  try {
    bool done = messages_.start(message);
    if (!done && !messages_.leaves_node(message) && !is_read_for_long(message)) {
      base::Waiter waiter(wait_policy_);
      for (int steps = wait_policy_.pauses_before_yield + kTurnsOfPeers; !done && steps > 0; --steps) {
        done = messages_.look(message);
        if (!done) waiter.step();
      }
    }
    if (done) {
      if (messages_.has_news()) {
        tell_driver();
      } else if (messages_.is_busy()) {
        look_soon();
      }
      return;
    }
  } catch (const Error& error) {  // a peer has written what no peer writes
    messages_.give_up(message, error.status());
    give_up(topology_.rank, ErrorCode::transport, std::string(error.status().message()));
  }
  const auto operation = std::make_shared<MessageOperation>();
  operation->message = &message;
  operation->engine = weak_from_this();
  operation->self = operation;
  if (!adopt(message, operation.get(), timeout)) {
    operation->self.reset();
    return;
  }
  wait(*operation, std::nullopt);
}

/// A peer reads the message where it lies, and may need this very CPU for that: whoever waits sleeps at once.
bool Engine::is_read_for_long(const p2p::Message& message) {
  return wait_policy_.pauses_before_yield == 0 && message.bytes >= kLongRead && messages_.is_read_by_peer(message);
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
  if (done || !adopt(message, operation.get(), timeout)) {
    operation->self.reset();
    bool was_interesting = false;
    operation->complete(message.status, was_interesting);  // nobody has it yet
  }
  if (messages_.has_news() || (messages_.is_busy() && messages_.leaves_node(message))) return tell_driver();
  if (messages_.is_busy()) look_soon();
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
  move_transport();
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

/// Its handle is destroyed by an exception: unlike a collective a message can end alone.
void Engine::end_message(Operation& operation) {
  messages_.give_up(*operation.message,
                    Status(ErrorCode::user_exception, "an exception has destroyed the handle of this message"));
  const auto is_done = [&operation] { return operation.done(); };
  while (!is_done()) help_until(is_done, base::now() + std::chrono::seconds(1));
}

// ---------------------------------------------------------------- the driver

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
    auto& operation = *static_cast<MessageOperation*>(message->owner);
    const OperationPtr held = std::move(operation.self);
    const Status status = message->status;  // once the operation is done a caller may take the message away
    if (!status.ok()) ++metrics_.failures;
    if (status.code() == ErrorCode::rank_lost) ending_.note_desertion();
    bool was_interesting = false;
    for (auto& callback : operation.complete(status, was_interesting)) errands_.call(std::move(callback), status);
    if (was_interesting) interest_.note_met();
  }
  return true;
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
  return armed && errands_.empty();
}

}  // namespace kolo::engine
