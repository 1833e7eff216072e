// SPDX-License-Identifier: Apache-2.0
#include "control/participant/sequences.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "control/ranges.hpp"

namespace kolo::control::participant {

using core::Round;

namespace {

void note_run(const Sequence& sequence) {
  require(sequence.run <= sequence.made, "the log runs a call that this rank has not made");
}

}  // namespace

void Sequences::call(Set& set, const std::shared_ptr<const core::Signature>& signature, Round first,
                     std::uint64_t count) {
  Sequence& sequence = set.sequence;
  counters_.called += count;
  if (first > sequence.made + 1) pass(sequence, first - 1);
  const std::uint64_t running = first > sequence.last ? 0 : std::min(count, sequence.last - first + 1);
  if (running > 0) {
    if (!sequence.said.has_news()) {
      grown_.push_back(&set);
      sequence.said.go_on_from(first - 1);
    }
    sequence.said.add({signature, running});
  }
  sequence.made = first + count - 1;  // calls that cannot run will fail
  if (set.has_departed) publisher_.ask(set);
}

void Sequences::pass(Sequence& sequence, Round last) {
  last = std::min(last, sequence.last);  // later ones have not avoided the log: they have failed
  if (last <= sequence.made) return;
  KOLO_CHECK(sequence.made <= sequence.over()) << "calls have avoided the log while others are in flight there";
  sequence.passed = std::max(sequence.passed, last);
}

void Sequences::speak_of_calls() {
  for (Set* const set : grown_) publisher_.say(set->sequence.said.next_message());
  grown_.clear();
}

void Sequences::restart_sequence(Sequence& sequence, bool done, Round calls) {
  sequence.absent.clear();
  if (!done) {
    require(sequence.run <= calls, "a join fails before what has run meanwhile");
    sequence.last = std::min(sequence.last, calls);
    return;
  }
  require(sequence.made <= sequence.over(), "a join ended with calls in flight");
  require(sequence.over() <= calls, "a join ended with fewer calls than there were");
  sequence.passed = calls;
}

void Sequences::on(const SequenceAppended& entry, std::vector<Action>& actions) {
  Set& set = names_.set_in_log(entry.set);
  if (!set.member) return;
  Sequence& sequence = set.sequence;
  const Round first = sequence.over() + 1;
  RunCalls batch{entry.set, entry.calls, sequence.absent.without(first), entry.repeats};
  batch.uncounted = set.absent.uncounted(batch.absent);
  batch.last = entry.last;
  sequence.run = first + entry.calls - 1;
  require(sequence.absent.empty() || sequence.absent.without(sequence.run) == batch.absent,
          "other ranks contribute to one part of a batch");
  require(batch.absent.empty() == entry.repeats.empty(), "a batch of a sequence does not say what it is");
  if (!std::binary_search(batch.absent.begin(), batch.absent.end(), rank_)) note_run(sequence);
  ++set.run;
  ++counters_.batches;
  actions.emplace_back(std::move(batch));
}

void Sequences::on(const SequenceFailed& entry, std::vector<Action>& actions) {
  Set& set = names_.set_in_log(entry.set);
  if (!set.member) return;
  Sequence& sequence = set.sequence;
  sequence.run = sequence.over() + 1;
  require(sequence.run == entry.call, "the log fails another call than the next");
  if (sequence.absent.lacks(rank_, sequence.run)) return;
  note_run(sequence);
  if (entry.code == ErrorCode::mismatch) ++counters_.mismatches;
  actions.emplace_back(FailCall{entry.set, Status(entry.code, entry.message)});
  publisher_.finish_dropped(set);
}

void Sequences::on(const SequenceEnded& entry, std::vector<Action>& actions) {
  if (entry.code == ErrorCode::rank_lost) departed_.note_failure();
  Set& set = names_.set_in_log(entry.set);
  if (!set.member) return;
  Sequence& sequence = set.sequence;
  require(sequence.run <= entry.last, "a sequence ends before what has run of it");
  sequence.last = std::min(sequence.last, entry.last);
  if (sequence.made <= entry.last) return;
  sequence.made = entry.last;
  actions.emplace_back(FailLastCalls{entry.set, entry.last, Status(entry.code, entry.message)});
  publisher_.finish_dropped(set);
}

}  // namespace kolo::control::participant
