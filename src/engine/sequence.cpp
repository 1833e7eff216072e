// SPDX-License-Identifier: Apache-2.0
//
// Unnamed asynchronous calls: see the essay in control/messages.hpp.
#include "engine/sequence.hpp"

#include <algorithm>
#include <iterator>

#include "base/cache_line.hpp"
#include "base/check.hpp"
#include "engine/engine.hpp"
#include "engine/records.hpp"

namespace kolo::engine {

OperationPtr Sequence::take() {
  const auto make = [this] {
    auto made = std::make_shared<Operation>();
    made->entry = &entry_;
    return made;
  };
  const base::MutexLock lock(mutex_);
  if (!kept_.empty() && kept_[oldest_]->done()) {
    OperationPtr& kept = kept_[oldest_];
    oldest_ = (oldest_ + 1) % kept_.size();
    if (!try_reuse(kept)) kept = make();  // somebody has it yet, or it failed
    base::fetch_early(kept_[oldest_].get(), kTouchedBySubmission);
    return kept;
  }
  OperationPtr made = make();
  if (kept_.size() == kMostKept) return made;
  // The youngest stands before the oldest.
  kept_.insert(oldest_ == 0 ? kept_.end() : kept_.begin() + static_cast<std::ptrdiff_t>(oldest_), made);
  if (oldest_ > 0) ++oldest_;
  return made;
}

std::vector<OperationPtr> Sequence::pop_behind(core::Round last) {
  const auto first =
      std::find_if(waiting_.begin(), waiting_.end(), [last](const auto& one) { return one->call > last; });
  std::vector<OperationPtr> popped(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
  waiting_.erase(first, waiting_.end());
  for (const OperationPtr& operation : popped) operation->is_waiting = false;
  return popped;
}

// ---------------------------------------------------------------- the engine's part

void Engine::admit_call(OperationPtr operation, base::Time now) {
  if (!take_in(*operation, false, now)) return;
  const core::SetId set = operation->entry->set;
  if (sets_.joins.any() && sets_.joins.find(set) != nullptr) return refuse_absent(*operation);
  operation->call = participant_.call(set, operation->signature);
  if (logger_->enabled(LogLevel::trace)) errands_.log(LogLevel::trace, "submitted: " + record_of(*operation));
  sets_.sequence_of(set).push(std::move(operation));
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
