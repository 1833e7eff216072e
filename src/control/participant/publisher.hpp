// SPDX-License-Identifier: Apache-2.0
//
// What a rank says: how submissions, waits, completed batches and the end of a set become messages and counts.
//
// A question is asked at once about what may lack a rank that has left, or, of a request that names its members, one
// that has joined; the sequencer says whether it does.
//
// That this rank has done with a set is said once, when its program has dropped the set, and nothing of this rank's is
// open there: no submission, no call, no join, no batch.
#pragma once

#include <cstdint>
#include <utility>

#include "control/participant/departed_ranks.hpp"
#include "control/participant/slot_table.hpp"

namespace kolo::control::participant {

class Publisher {
 public:
  Publisher(std::int32_t rank, SlotTable& slots, const DepartedRanks& departed, ParticipantCounters& counters)
      : rank_(rank), slots_(slots), departed_(departed), counters_(counters) {}

  [[nodiscard]] Outbox& outbox() noexcept { return out_; }
  template <class Message>
  void say(Message&& message) {
    out_.messages.emplace_back(std::forward<Message>(message));
  }

  /// The slot's submission, by a count.
  void count(Slot& slot) {
    slot.whole = false;
    slot.counted = true;
    ++counters_.bare;
    out_.counts.emplace_back(slot.id, CountWord{slot.generation, slot.round});
    out_.counts_for_sets = out_.counts_for_sets || slot.set->number != core::kGlobalSet;
  }
  /// The slot's submission, whole.
  void declare(Slot& slot);
  /// The id means nothing any more that this rank has counted.
  void clear_word(core::TensorId id) { out_.counts.emplace_back(id, CountWord{}); }

  /// Whether a rank may be missing that has left, or has joined and will not make the request.
  [[nodiscard]] bool lacks_somebody(const Slot& slot) const {
    if (slot.members.empty()) return slot.set->has_departed;
    return (slot.set->has_departed && departed_.has_any(slot.members)) || slot.set->absent.any_of(slot.members);
  }
  void ask(const Slot& slot, double waited_s, bool deadline, bool asked = false);
  /// About the last call of the set's sequence: whether a rank has left that will not make it.
  void ask(const Set& set);

  /// Not between `join` and `RankJoined`: the sequencer takes it for a sign that what was said before has come, and a
  /// count overtakes a message.
  void publish_completed(const Set& set);
  void count_steps(Set& set, std::uint64_t steps);
  /// The program has dropped the set.
  void drop(Set& set) {
    set.is_dropped = true;
    finish_dropped(set);
  }
  /// Says that this rank has done with a set that its program has dropped, once that is true.
  void finish_dropped(Set& set);

 private:
  const std::int32_t rank_;
  SlotTable& slots_;
  const DepartedRanks& departed_;
  ParticipantCounters& counters_;
  Outbox out_;
};

}  // namespace kolo::control::participant
