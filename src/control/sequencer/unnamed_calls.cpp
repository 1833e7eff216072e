// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/unnamed_calls.hpp"

#include <algorithm>
#include <utility>

#include "control/sentences.hpp"
#include "control/sequencer/agreement.hpp"

namespace kolo::control::sequencer {

using core::Round;

namespace {

void pop_calls(Sequence& sequence, std::uint64_t count) {
  sequence.run += count;
  sequence.queue.front().count -= count;
  if (sequence.queue.front().count == 0) sequence.queue.pop_front();
}

/// Of the next calls, so many at most, those to which the same ranks contribute.
std::uint64_t alike(const Sequence& sequence, std::uint64_t count) {
  for (const auto& [rank, calls] : sequence.joined) {
    if (calls > sequence.run) count = std::min(count, calls - sequence.run);
  }
  return count;
}

}  // namespace

void UnnamedCalls::on(SequenceGrown message) {
  Set* const set = sets_.find(message.set);
  if (set == nullptr) return;
  Sequence& sequence = set->sequence;
  const bool was_empty = sequence.queue.empty();
  Round number = sequence.heard.calls();
  for (Calls& calls : sequence.heard.take(std::move(message))) {
    if (number >= sequence.last) break;
    calls.count = std::min(calls.count, sequence.last - number);
    number += calls.count;
    sequence.queue.push_back(std::move(calls));
  }
  if (was_empty && !sequence.queue.empty()) ready_.enqueue(*set, ReadySets::queued_calls(*set));
}

void UnnamedCalls::append_calls(Set& set) {
  Sequence& sequence = set.sequence;
  SequenceAppended batch{set.number, 0};
  std::vector<std::int32_t> absent;
  BatchRoom room(options_.fusion_threshold);
  while (!sequence.queue.empty()) {
    Calls& next = sequence.queue.front();
    const Round number = sequence.run + 1;
    std::vector<std::int32_t> without = sequence.without(number);
    const Request request{set.number, kSequence, number};
    if (const std::string why = why_not(sets_, set, request, next, without); !why.empty()) {
      if (batch.calls > 0) break;
      log_.append(
          SequenceFailed{set.number, number, next.signature ? ErrorCode::invalid_argument : ErrorCode::mismatch, why});
      pop_calls(sequence, 1);
      continue;
    }
    const std::int64_t bytes = next.signature->bytes();
    if (batch.calls > 0 && (without != absent || !room.takes(next.signature->kind, bytes))) break;
    absent = std::move(without);
    const std::uint64_t count = room.add_alike(next.signature->kind, bytes, alike(sequence, next.count));
    if (!absent.empty()) batch.repeats.push_back({count, without_names(*next.signature)});
    batch.calls += count;
    pop_calls(sequence, count);
  }
  if (batch.calls > 0) {
    ++set.appended;
    log_.append(std::move(batch));
  }
  if (!sequence.queue.empty()) ready_.enqueue(set, ReadySets::queued_calls(set));
}

void UnnamedCalls::note_asked(Set& set, Round call) {
  set.sequence.asked = std::max(set.sequence.asked, call);
  end_sequence(set);
}

void UnnamedCalls::end_sequence(Set& set) {
  if (set.sequence.asked <= set.sequence.last) return;
  const Request request{set.number, kSequence, set.sequence.last + 1};
  const std::vector<std::int32_t> culprits = departures_.first_of(departures_.left_of(set.members));
  set.sequence.asked = set.sequence.last;
  log_.append(SequenceEnded{set.number, set.sequence.last, ErrorCode::rank_lost,
                            culprits.empty() ? nothing_more(departures_.first())
                                             : hopeless(sets_.subject_of(request), false, culprits)});
}

void UnnamedCalls::cut_sequence(Set& set, Round last) {
  Sequence& sequence = set.sequence;
  if (last >= sequence.last) return;
  sequence.last = last;
  end_sequence(set);
}

}  // namespace kolo::control::sequencer
