// SPDX-License-Identifier: Apache-2.0
//
// Unnamed asynchronous calls: see the essay in control/messages.hpp.
#include "engine/sequence.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.hpp"
#include "engine/engine.hpp"
#include "engine/records.hpp"

namespace kolo::engine {

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

std::vector<OperationPtr> Sequence::pop_behind(core::Round last) {
  const auto first =
      std::find_if(waiting_.begin(), waiting_.end(), [last](const auto& one) { return one->call > last; });
  std::vector<OperationPtr> popped(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
  waiting_.erase_end(popped.size());
  for (const OperationPtr& operation : popped) operation->is_waiting = false;
  return popped;
}

// ---------------------------------------------------------------- the engine's part

void Engine::admit_call(OperationPtr&& operation, base::Time now) {
  Operation& one = *operation;
  if (!take_in(one, false, now)) return;
  const core::SetId set = one.entry->set;
  if (sets_.joins.any() && sets_.joins.find(set) != nullptr) return refuse_absent(one);
  sets_.sequence_of(set).push(std::move(operation));
  if (!found_calls_.is_one_more(one)) {
    tell_calls();
    found_calls_ = {set, &one, participant_.calls(set), 0};
  }
  one.call = found_calls_.made + ++found_calls_.count;
  if (logger_->enabled(LogLevel::trace)) errands_.log(LogLevel::trace, "submitted: " + record_of(one));
}

/// Of the calls that have been taken in: before anything else is taken in that must come behind them, and before
/// anything is said.
void Engine::tell_calls() {
  if (found_calls_.first == nullptr) return;
  const Operation& first = *std::exchange(found_calls_.first, nullptr);  // now: what follows may throw
  const core::Round last = participant_.call(found_calls_.set, first.signature, found_calls_.count);
  KOLO_CHECK(last == found_calls_.made + found_calls_.count) << "process set " << found_calls_.set;
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
