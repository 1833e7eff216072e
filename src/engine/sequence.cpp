// SPDX-License-Identifier: Apache-2.0
//
// Calls without a name (control/messages.hpp, "Sequences").
#include "engine/sequence.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/hash.hpp"

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
  if (!kept_.empty() && kept_.front()->released()) {
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
  if (reservations_ == ended_) return give(operation, log);
  behind_.push_back(std::move(operation));
  return true;
}

void Sequence::reserve() {
  const std::uint64_t mine = reservations_++;
  while (ended_ != mine) reservation_ended_.wait(mutex_);
}

void Sequence::end_reservation() {
  ++ended_;
  if (reservations_ != ended_) reservation_ended_.notify_all();
}

Sequence::Reservation Sequence::begin() {
  const base::MutexLock lock(mutex_);
  reserve();
  // In this order: the shortcut is closed before a call is over that a member has not made.
  const bool is_over = over_.load(std::memory_order_acquire) == given_;
  return {made_ + 1, is_over && shortcut.is_open_for(made_ + 1)};
}

bool Sequence::try_end(Reservation& reserved, OperationPtr& by_log, Calls& log) {
  const base::MutexLock lock(mutex_);
  if (std::exchange(reserved.has_avoided, false)) {
    made_ = reserved.call;
    avoided_.store(made_, std::memory_order_release);
  }
  if (by_log && !give(by_log, log)) return false;
  while (!behind_.empty()) {
    reserved.had_others = true;
    if (!give(behind_.front(), log)) return false;
    behind_.pop_front();
  }
  end_reservation();
  return true;
}

core::Round Sequence::begin_join() {
  const base::MutexLock lock(mutex_);
  reserve();
  is_joined_ = true;
  return made_;
}

void Sequence::go_on_from(core::Round call) {
  const base::MutexLock lock(mutex_);
  made_ = std::max(made_, call);
}

void Sequence::end_join() {
  const base::MutexLock lock(mutex_);
  is_joined_ = false;
  end_reservation();
}

std::vector<OperationPtr> Sequence::pop_behind(core::Round last) {
  const auto first =
      std::find_if(waiting_.begin(), waiting_.end(), [last](const auto& one) { return one->call > last; });
  std::vector<OperationPtr> popped(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
  waiting_.erase_end(popped.size());
  for (const OperationPtr& operation : popped) operation->is_waiting = false;
  return popped;
}

}  // namespace kolo::engine
