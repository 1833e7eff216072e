// SPDX-License-Identifier: Apache-2.0
#include "engine/submitter.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace kolo::engine {
namespace {

/// How often a submitter looks again for what others have said while it spoke.
constexpr int kLooks = 4;
/// How often a CPU is given away before the engine is driven: every rank that shares it should have had it once.
constexpr int kYields = 64;
/// The longest patience, whatever KOLO_SPIN_US is, because deadlines are not checked meanwhile.
constexpr std::chrono::milliseconds kPatience{10};

}  // namespace

// ---------------------------------------------------------------- by name

void Submitter::submit(OperationPtr operation, bool quiet) {
  driving_.give_engine(*operation);
  driving_.push({Command::submit, std::move(operation)});
  if (!quiet) tell_engine();
}

void Submitter::end_step(core::SetId set) {
  engine_.ending.check_usable();
  if (set == core::kGlobalSet) steps_.fetch_add(1, std::memory_order_relaxed);
  driving_.push({Command::end_step, nullptr, set});
  tell_engine();
}

// ---------------------------------------------------------------- in the order of the set's sequence

void Submitter::call(SetState& set, OperationPtr operation) {
  Sequence& sequence = set.sequence;
  driving_.give_engine(*operation);
  note_thread(set);
  while (!sequence.try_call(operation, control_loop_.mailbox)) driving_.make_space();
  tell_engine();
}

Sequence::Reservation Submitter::begin_call(SetState& set) {
  note_thread(set);
  return set.sequence.begin();
}

void Submitter::end_call(SetState& set, Sequence::Reservation& reserved, OperationPtr by_log) {
  const bool is_lost = reserved.has_spoken && !reserved.has_avoided && !by_log;
  if (by_log) driving_.give_engine(*by_log);
  while (!set.sequence.try_end(reserved, by_log, control_loop_.mailbox)) driving_.make_space();
  if (is_lost) {
    engine_.driver.take_over();
    const Driving::HandOver after(driving_);
    driving_.guarded([this]() KOLO_REQUIRES(kDriving) {
      engine_.ending.report(ErrorCode::user_exception,
                            "an exception kept it from making a call that other ranks wait for");
      return true;
    });
  }
  if (reserved.had_others) tell_engine();
}

void Submitter::note_thread(SetState& set) {
  if (!engine_.logger->enabled(LogLevel::debug) || !set.sequence.is_second_thread()) return;
  KOLO_LOG(*engine_.logger, debug) << "more than one thread makes unnamed calls in "
                                   << (set.words.empty() ? "the world" : set.words)
                                   << ": all ranks must make them in one order; give names, or a group to each thread";
}

OperationPtr Submitter::join(SetState& set, bool counts, std::optional<std::chrono::nanoseconds> timeout, bool waits) {
  engine_.ending.check_usable();
  driving_.check_may_wait();  // for the reservation
  const auto signature = std::make_shared<core::Signature>();
  signature->kind = core::CollectiveKind::barrier;
  auto operation = std::make_shared<Operation>();
  operation->signature = signature;
  operation->is_join = true;
  driving_.give_engine(*operation);
  operation->timeout = timeout;
  operation->entry = &set.sequence.join_entry();
  operation->call = set.sequence.begin_join();
  driving_.push({counts ? Command::join_counted : Command::join, operation, set.number});
  if (!waits) tell_engine();
  return operation;
}

// ---------------------------------------------------------------- sets

SetStatePtr Submitter::make_set(const std::vector<std::int32_t>& ranks, const GroupOptions& options) {
  engine_.ending.check_usable();
  driving_.check_may_wait();
  const OperationPtr operation = request_for_set(engine_.world->names, ranks, options);
  driving_.give_engine(*operation);
  driving_.push({Command::make_set, operation});
  driving_.wait(*operation, std::nullopt);
  if (operation->failed()) throw Error(operation->outcome());
  return std::move(operation->outputs.first.set);
}

void Submitter::drop_set(core::SetId set) {
  if (engine_.ending.is_stopped()) return;
  driving_.push({Command::drop_set, nullptr, set});
  tell_engine();
}

// ---------------------------------------------------------------- questions

void Submitter::note_awaited(Operation& operation) {
  if (!operation.done() && engine_.open.waiters.mark(operation)) tell_engine();
}

std::vector<int> Submitter::late_ranks(const OperationPtr& operation, base::Time until) {
  if (operation->done() || operation->message != nullptr) return {};
  driving_.check_may_wait();
  operation->forget_late();
  driving_.push({Command::ask, operation});
  driving_.pass_now();
  return operation->sleep_until_late(until);
}

// ---------------------------------------------------------------- what a thread says by itself

void Submitter::tell_engine() {
  if (engine_.driver.nobody_looks() && !say_at_once()) engine_.driver.ring_if_asleep();
}

/// A thread publishes its own submission if the engine is asleep: that costs less than waking the background thread,
/// which often shares this thread's CPU. It also moves a single small tensor as far as possible; later events wake the
/// engine. A submission of a burst (OpenOperations) is left to the thread that waits for it, or to the background
/// thread after a nap. The thread runs no callbacks, because it may hold a lock that they need; the next driver runs
/// them. False: nothing was done.
bool Submitter::say_at_once() {
  if (!engine_.driver.try_look()) return false;
  if (engine_.ending.faulted() || engine_.ending.is_closed()) {
    engine_.driver.look_away();
    return false;
  }
  if (engine_.open.is_burst()) {
    engine_.driver.nap(base::now() + Driving::kNap);
    engine_.driver.look_away();
    return true;
  }
  engine_.driver.take();
  bool lone = false;
  // Once more for what others say meanwhile: as long as that is not for the background thread anyway.
  for (int look = 0; look < kLooks && (look == 0 || driving_.has_work()); ++look) {
    lone = false;
    driving_.guarded([&]() KOLO_REQUIRES(kDriving) { return lone = driving_.pass(Driving::Depth::publish); });
    engine_.open.waiters.note_change();
    driving_.end_pass();
  }
  driving_.hand_over(lone);
  return true;
}

// ---------------------------------------------------------------- past the log

using Verdict = control::Shortcut::Verdict;

bool Submitter::take_shortcut(SetState& set, Sequence::Reservation& reserved, const data::SmallCall& call) {
  if (!reserved.may_avoid_log) return false;
  SetShortcut& of_set = set.sequence.shortcut;
  control::Shortcut* const shortcut = of_set.begin(reserved.call, call);
  if (shortcut == nullptr) return false;
  reserved.has_spoken = true;
  if (await_verdict(*shortcut) != Verdict::together) return false;
  reserved.has_avoided = true;
  of_set.finish(call);
  engine_.recorder->count_fast(set.number, reserved.call);
  KOLO_LOG(*engine_.logger, trace) << "done past the log: unnamed " << core::to_string(call.kind) << ", "
                                   << call.bytes() << " bytes";
  return true;
}

/// How a blocking call that may avoid the log waits for its peers (control/shortcut.hpp). First the caller polls the
/// peers' words without touching the engine: for as long as a rank with a CPU of its own needs, or until the ranks that
/// share this CPU have run. After that a peer may wait for this engine (an asynchronous operation, a leader's
/// relaying), so the caller drives the engine while it polls, if no other thread drives. When its patience is over, it
/// demotes the call to the log, where waits sleep, have a deadline, and name the missing ranks.
Verdict Submitter::await_verdict(control::Shortcut& shortcut) {
  const auto is_decided = [&shortcut] { return shortcut.look() != Verdict::undecided; };
  base::Waiter waiter(engine_.wait_policy);
  for (int steps = engine_.wait_policy.pauses + kYields; steps > 0; --steps) {
    if (is_decided()) return shortcut.look();
    waiter.step();
  }
  driving_.help_until(is_decided, base::now() + std::min<base::Duration>(engine_.wait_policy.active, kPatience));
  return shortcut.demote();
}

}  // namespace kolo::engine
