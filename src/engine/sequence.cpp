// SPDX-License-Identifier: Apache-2.0
//
// Calls without a name: see the essay in control/messages.hpp.
#include "engine/sequence.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/hash.hpp"
#include "engine/engine.hpp"
#include "engine/records.hpp"

namespace kolo::engine {

Sequence::Sequence(core::SetId set, NameTable& names) : entry_(set, names), join_entry_(set, names) {
  entry_.name = control::kSequence;
  entry_.hash = base::hash_string(entry_.name);
  entry_.known = true;
  entry_.sequence = this;
}

OperationPtr Sequence::take() {
  const base::MutexLock lock(mutex_);
  OperationPtr operation;
  if (!kept_.empty() && kept_.front()->settled()) {
    operation = std::move(kept_.front());
    kept_.pop_front();
    if (!try_reuse(operation)) operation.reset();  // it failed, or somebody has it
  }
  if (!operation) {
    operation = std::make_shared<Operation>();
    operation->entry = &entry_;
  }
  if (kept_.size() < kMostKept) kept_.push_back(operation);
  return operation;
}

bool Sequence::is_second_thread() noexcept {
  const std::thread::id self = std::this_thread::get_id();
  std::thread::id first = thread_.load(std::memory_order_relaxed);
  if (first == self || is_shared_.load(std::memory_order_relaxed)) return false;
  if (first == std::thread::id() && thread_.compare_exchange_strong(first, self, std::memory_order_relaxed))
    return false;
  return first != self && !is_shared_.exchange(true, std::memory_order_relaxed);
}

// ---------------------------------------------------------------- numbers

/// The call's number is its own from here on.
bool Sequence::give(OperationPtr& operation, Calls& log) {
  operation->call = made_ + 1;
  Submission submission{Command::submit, std::move(operation)};
  if (!log.try_push(std::move(submission))) {
    operation = std::move(submission.operation);  // NOLINT(bugprone-use-after-move): what does not fit is not touched
    return false;
  }
  ++given_;
  shortcut.give(++made_);
  return true;
}

bool Sequence::try_call(OperationPtr& operation, Calls& log) {
  const base::MutexLock lock(mutex_);
  if (is_joined_) {
    operation->call = 0;  // it has no number, and fails
    Submission submission{Command::submit, std::move(operation)};
    if (log.try_push(std::move(submission))) return true;
    operation = std::move(submission.operation);  // NOLINT(bugprone-use-after-move): as above
    return false;
  }
  if (turns_ == ended_) return give(operation, log);
  behind_.push_back(std::move(operation));
  return true;
}

void Sequence::take_turn() {
  const std::uint64_t mine = turns_++;
  while (ended_ != mine) turn_ended_.wait(mutex_);
}

void Sequence::end_turn() {
  ++ended_;
  if (turns_ != ended_) turn_ended_.notify_all();
}

Sequence::Turn Sequence::begin() {
  const base::MutexLock lock(mutex_);
  take_turn();
  // In this order: the shortcut is closed before a call is over that a member has not made.
  const bool is_over = over_.load(std::memory_order_acquire) == given_;
  return {made_ + 1, is_over && shortcut.is_open_for(made_ + 1)};
}

bool Sequence::try_end(Turn& turn, OperationPtr& by_log, Calls& log) {
  const base::MutexLock lock(mutex_);
  if (std::exchange(turn.has_avoided, false)) {
    made_ = turn.call;
    avoided_.store(made_, std::memory_order_release);
  }
  if (by_log && !give(by_log, log)) return false;
  while (!behind_.empty()) {
    turn.had_others = true;
    if (!give(behind_.front(), log)) return false;
    behind_.pop_front();
  }
  end_turn();
  return true;
}

core::Round Sequence::begin_join() {
  const base::MutexLock lock(mutex_);
  take_turn();
  is_joined_ = true;
  return made_;
}

void Sequence::go_on_from(core::Round call) {
  const base::MutexLock lock(mutex_);
  made_ = call;
}

void Sequence::end_join() {
  const base::MutexLock lock(mutex_);
  is_joined_ = false;
  end_turn();
}

std::vector<OperationPtr> Sequence::pop_behind(core::Round last) {
  const auto first =
      std::find_if(waiting_.begin(), waiting_.end(), [last](const auto& one) { return one->call > last; });
  std::vector<OperationPtr> popped(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
  waiting_.erase_end(popped.size());
  for (const OperationPtr& operation : popped) operation->is_waiting = false;
  return popped;
}

// ---------------------------------------------------------------- the engine's part

void Engine::call(SetState& set, OperationPtr operation) {
  Sequence& sequence = set.sequence;
  remember_engine(*operation);
  note_thread(set);
  while (!sequence.try_call(operation, mailbox_)) make_room();
  if (driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
}

Sequence::Turn Engine::begin_call(SetState& set) {
  note_thread(set);
  return set.sequence.begin();
}

void Engine::end_call(SetState& set, Sequence::Turn& turn, OperationPtr by_log) {
  const bool is_lost = turn.has_spoken && !turn.has_avoided && !by_log;
  if (by_log) remember_engine(*by_log);
  while (!set.sequence.try_end(turn, by_log, mailbox_)) make_room();
  if (is_lost) {
    driver_.take_over();
    const HandOver after(*this);
    guarded([this]() KOLO_REQUIRES(driver_.mutex()) {
      announce_fault(ErrorCode::user_exception, "an exception kept it from making a call that other ranks wait for");
      return true;
    });
  }
  if (turn.had_others && driver_.nobody_looks() && !say_at_once()) driver_.ring_if_asleep();
}

void Engine::note_thread(SetState& set) {
  if (!logger_->enabled(LogLevel::debug) || !set.sequence.is_second_thread()) return;
  KOLO_LOG(*logger_, debug) << "more than one thread makes unnamed calls in "
                            << (set.words.empty() ? "the world" : set.words)
                            << ": all ranks must make them in one order; give names, or a group to each thread";
}

void Engine::admit_call(OperationPtr&& operation, base::Time now) {
  Operation& one = *operation;
  if (!take_in(one, false, now)) return;
  if (one.call == 0) return refuse_absent(one);
  const core::SetId set = one.entry->set;
  sets_.sequence_of(set).push(std::move(operation));
  if (!found_calls_.is_one_more(one)) {
    tell_calls();
    found_calls_ = {set, &one, one.call, 0};
  }
  ++found_calls_.count;
  if (logger_->enabled(LogLevel::trace)) errands_.log(LogLevel::trace, "submitted: " + record_of(one));
}

/// Of the calls that have been taken in: before anything else is taken in that must come behind them, and before
/// anything is said.
void Engine::tell_calls() {
  if (found_calls_.first == nullptr) return;
  const Operation& first = *std::exchange(found_calls_.first, nullptr);  // now: what follows may throw
  participant_.call(found_calls_.set, first.signature, found_calls_.number, found_calls_.count);
}

void Engine::run_calls(const control::RunCalls& batch) {
  ++metrics_.batches;
  Sequence& sequence = sets_.sequence_of(batch.set);
  if (batch.set == core::kGlobalSet)
    metrics_.batch_digest += base::hash_hash(sequence.hash(), base::hash_number(batch.calls));
  const bool is_absent = std::binary_search(batch.absent.begin(), batch.absent.end(), topology_.rank);
  std::vector<OperationPtr> members;
  if (is_absent) {
    std::vector<std::shared_ptr<const core::Signature>> signatures;
    for (const control::SequenceAppended::Repeat& repeat : batch.repeats) {
      signatures.insert(signatures.end(), repeat.count, std::make_shared<const core::Signature>(repeat.signature));
    }
    members = stand_ins(batch.set, signatures);
  } else {
    members.reserve(batch.calls);
    for (std::uint64_t i = 0; i < batch.calls; ++i) members.push_back(sequence.pop());
  }
  if (!batch.absent.empty()) return start_without(batch.set, std::move(members), {batch.uncounted, is_absent});
  start_batch(batch.set, std::move(members), 0, 0);
}

void Engine::fail_call(const control::FailCall& failed) {
  const OperationPtr operation = sets_.sequence_of(failed.set).pop();
  complete(*operation, failed.status);
}

void Engine::fail_last_calls(const control::FailLastCalls& failed) {
  ending_.note_desertion();
  for (const OperationPtr& operation : sets_.sequence_of(failed.set).pop_behind(failed.last)) {
    complete(*operation, failed.status);
  }
}

/// Of a call that waits for the log, or runs.
void Engine::ask_about_call(const Operation& operation, double waited, bool deadline) {
  // The log runs calls in their order: a warning about the first is one about all.
  const core::SetId set = operation.entry->set;
  if (!deadline && (!operation.is_waiting || sets_.sequence_of(set).front().get() != &operation)) return;
  participant_.overdue_call(set, operation.call, operation.signature->kind, waited, deadline, !operation.is_waiting);
}

}  // namespace kolo::engine
