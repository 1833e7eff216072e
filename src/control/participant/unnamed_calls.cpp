// SPDX-License-Identifier: Apache-2.0
#include "control/participant/unnamed_calls.hpp"

#include <algorithm>

#include "control/ranges.hpp"

namespace kolo::control::participant {

using core::Round;

namespace {

void note_run(const Sequence& sequence) {
  require(sequence.run <= sequence.said.calls(), "the log runs a call that this rank has not made");
}

}  // namespace

Round UnnamedCalls::call(Set& set, const std::shared_ptr<const core::Signature>& signature, std::uint64_t count) {
  Sequence& sequence = set.sequence;
  counters_.called += count;
  const Round last = sequence.said.calls() + count;
  const std::uint64_t running = sequence.last - std::min(sequence.last, sequence.said.calls());
  if (running > 0) {
    if (!sequence.said.has_news()) grown_.push_back(&set);
    sequence.said.add({signature, std::min(count, running)});
  }
  if (running < count) sequence.said.go_on_from(last);  // those will fail
  if (set.has_left) publisher_.ask(set);
  return last;
}

void UnnamedCalls::speak_of_calls() {
  for (Set* const set : grown_) publisher_.say(set->sequence.said.take());
  grown_.clear();
}

void UnnamedCalls::restart_sequence(Sequence& sequence, bool done) {
  sequence.absent.clear();
  if (!done) sequence.last = sequence.run;
  require(!done || sequence.said.calls() <= sequence.run, "a join ended with calls in flight");
  if (sequence.said.calls() < sequence.run) sequence.said.go_on_from(sequence.run);
}

void UnnamedCalls::on(const SequenceAppended& entry, std::vector<Action>& actions) {
  Set& set = slots_.set_in_log(entry.set);
  if (!set.member) return;
  Sequence& sequence = set.sequence;
  RunCalls batch{entry.set, entry.calls, sequence.absent.without(sequence.run + 1), entry.repeats};
  batch.uncounted = set.absent.uncounted(batch.absent);
  sequence.run += entry.calls;
  require(sequence.absent.empty() || sequence.absent.without(sequence.run) == batch.absent,
          "other ranks contribute to one part of a batch");
  require(batch.absent.empty() == entry.repeats.empty(), "a batch of a sequence does not say what it is");
  if (!std::binary_search(batch.absent.begin(), batch.absent.end(), rank_)) note_run(sequence);
  ++set.run;
  ++counters_.batches;
  actions.emplace_back(std::move(batch));
}

void UnnamedCalls::on(const SequenceFailed& entry, std::vector<Action>& actions) {
  Set& set = slots_.set_in_log(entry.set);
  if (!set.member) return;
  Sequence& sequence = set.sequence;
  ++sequence.run;
  require(sequence.run == entry.call, "the log fails another call than the next");
  if (sequence.absent.lacks(rank_, sequence.run)) return;
  note_run(sequence);
  if (entry.code == ErrorCode::mismatch) ++counters_.mismatches;
  actions.emplace_back(FailCall{entry.set, Status(entry.code, entry.message)});
  publisher_.finish_dropped(set);
}

void UnnamedCalls::on(const SequenceEnded& entry, std::vector<Action>& actions) {
  if (entry.code == ErrorCode::rank_lost) left_.note_failure();
  Set& set = slots_.set_in_log(entry.set);
  if (!set.member) return;
  Sequence& sequence = set.sequence;
  require(sequence.run <= entry.last, "a sequence ends before what has run of it");
  sequence.last = std::min(sequence.last, entry.last);
  if (sequence.said.calls() <= entry.last) return;
  sequence.said.go_on_from(entry.last);
  actions.emplace_back(FailLastCalls{entry.set, entry.last, Status(entry.code, entry.message)});
  publisher_.finish_dropped(set);
}

}  // namespace kolo::control::participant
