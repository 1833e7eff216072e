// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer/call_order.hpp"

#include <utility>

#include "control/sentences.hpp"
#include "control/sequencer/batch_space.hpp"
#include "control/sequencer/opinions.hpp"

namespace kolo::control::sequencer {

using core::Round;

void CallOrder::on(SequenceGrown message) {
  Set* const set = sets_.find(message.set);
  if (set == nullptr) return;
  const bool was_empty = set->sequence.empty();
  set->sequence.hear(std::move(message));
  if (was_empty && !set->sequence.empty()) ready_.enqueue(*set, ReadySets::queued_calls(*set));
}

void CallOrder::append_calls(Set& set) {
  CallQueue& sequence = set.sequence;
  SequenceAppended batch{set.number, 0};
  std::vector<std::int32_t> absent;
  BatchSpace space(options_.fusion_threshold);
  while (!sequence.empty()) {
    const Calls& next = sequence.next();
    const Round number = sequence.run() + 1;
    std::vector<std::int32_t> without = sequence.without(number);
    const Request request{set.number, kSequence, number};
    const bool is_plain = next.signature && without.empty();
    const std::string why = is_plain ? std::string() : why_not(sets_, set, request, next, without);
    if (!why.empty()) {
      if (batch.calls > 0) break;
      log_.append(
          SequenceFailed{set.number, number, next.signature ? ErrorCode::invalid_argument : ErrorCode::mismatch, why});
      sequence.pop(1);
      continue;
    }
    const std::int64_t bytes = next.signature->bytes();
    if (batch.calls > 0 && (without != absent || !space.takes(*next.signature, bytes))) break;
    absent = std::move(without);
    const std::uint64_t count = space.add_alike(*next.signature, bytes, sequence.alike());
    if (!absent.empty()) batch.repeats.push_back({count, without_names(*next.signature)});
    batch.calls += count;
    batch.last = next.last;
    sequence.pop(count);
  }
  if (batch.calls > 0) {
    ++set.appended;
    if (sequence.run() <= set.held_calls) batch.last = -1;
    log_.append(std::move(batch));
  }
  if (!sequence.empty()) ready_.enqueue(set, ReadySets::queued_calls(set));
}

void CallOrder::note_asked(Set& set, Round call) {
  set.sequence.note_asked(call);
  end_sequence(set);
}

void CallOrder::cut_sequence(Set& set, Round last, Round passed) {
  set.sequence.pass(passed);
  set.sequence.cut(last);
  end_sequence(set);
}

void CallOrder::give_up(Set& set) {
  set.sequence.drop();
  end_sequence(set);
}

void CallOrder::end_sequence(Set& set) {
  if (!set.sequence.take_asked()) return;
  const Round last = set.sequence.last();
  const Request request{set.number, kSequence, last + 1};
  const Leavers culprits = departures_.first_of(departures_.lacking(set.number, last + 1, set.members));
  log_.append(SequenceEnded{set.number, last, ErrorCode::rank_lost,
                            culprits.first.empty() ? nothing_more(departures_.first())
                                                   : hopeless(sets_.subject_of(request), false, culprits)});
}

}  // namespace kolo::control::sequencer
