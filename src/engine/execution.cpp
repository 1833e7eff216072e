// SPDX-License-Identifier: Apache-2.0
#include "engine/execution.hpp"

#include <atomic>

namespace kolo::engine {

bool Execution::move(base::Time now) {
  if (!engine_.ending.may_use_backends()) return false;
  if (engine_.inter) engine_.inter->progress(now);  // first: what has come is tested for in this pass, not in the next
  const data::Progress result = engine_.executor.progress(
      [this](Operation& member, const Status& outcome) {
        Driver::assert_held();
        finish(member, outcome);
      },
      [this](Batch& batch) {
        Driver::assert_held();
        finish(batch);
      });
  if (result != data::Progress::advanced) return false;
  wake_peers();
  return true;
}

/// Those that sleep amid a batch.
void Execution::wake_peers() {
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the counters' stores stay before these looks
  for (int rank = 0; rank < engine_.board.ranks(); ++rank) {
    if (rank == engine_.topology.local_rank || !engine_.board.asleep_with_batches(rank)) continue;
    engine_.link->wake(rank);
    ++engine_.tally.wakeups_sent;
  }
}

/// For a timeline: what the device has done for the batch.
void Execution::tell_spans(const Batch& batch) {
  if (batch.job.timeline != engine_.recorder->sink_number()) return;  // it has ended, or another one runs
  for (const core::DeviceSpan& span : batch.job.spans) {
    engine_.recorder->tell_sink({span.begin_ns, span.end_ns, batch.serial, recorder::saturated(span.bytes),
                                 batch.job.set, recorder::Kind::device_span, span.code()});
  }
  if (batch.job.untimed.empty()) return;
  engine_.deferred.log(LogLevel::warning, "the timeline has no more rows of the device: " + batch.job.untimed);
}

void Execution::finish(Batch& batch) {
  if (batch.job.timeline != 0) tell_spans(batch);
  if (!batch.absence.is_own) engine_.executor.count(batch);
  if (batch.sibling == nullptr) {
    engine_.participant.completed(batch.job.set);
    engine_.recorder->record(recorder::Kind::batch_ended, batch.job.set, 0, batch.serial, 0, batch.routes);
  } else {
    batch.sibling->routes |= batch.routes;
  }
  if (batch.absence.is_own) return;
  engine_.tally.bytes_in_place += batch.job.bytes_in_place;
  for (std::size_t i = 0; i < batch.members.size(); ++i) {
    if (batch.members[i]) finish(*batch.members[i], batch.outcome_of(i));
  }
}

void Execution::finish(Operation& member, const Status& outcome) {
  if (member.signature->kind != core::CollectiveKind::message)  // those are counted when they are agreed on
    engine_.tally.note(member.signature->kind, member.buffers.size(), static_cast<std::uint64_t>(member.bytes()));
  if (outcome.ok() && !member.is_own) engine_.ending.note_success(member.waiting.since);
  engine_.open.complete(member, outcome);
}

}  // namespace kolo::engine
