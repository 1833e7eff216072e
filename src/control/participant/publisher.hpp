// SPDX-License-Identifier: Apache-2.0
//
// Publishing: how submissions, waits, completed batches and the end of a set become messages and counts.
//
// If a submission may lack a rank that has left (or, if the request names its members, a rank that has joined), the
// publisher asks about it at once. The sequencer says whether the rank is missing.
//
// A rank reports once that it is done with a set: when its program has dropped the set, and the rank has nothing open
// there (no submission, call, join or batch).
#pragma once

#include <cstdint>
#include <utility>

#include "control/participant/departed_ranks.hpp"
#include "control/participant/names.hpp"

namespace kolo::control::participant {

class Publisher {
 public:
  Publisher(std::int32_t rank, Names& names, const DepartedRanks& departed, ParticipantCounters& counters)
      : rank_(rank), names_(names), departed_(departed), counters_(counters) {}

  [[nodiscard]] Outbox& outbox() noexcept { return out_; }
  template <class Message>
  void say(Message&& message) {
    out_.messages.emplace_back(std::forward<Message>(message));
  }

  /// Publishes the name's submission by a count.
  void count(Name& named) {
    named.whole = false;
    named.counted = true;
    ++counters_.bare;
    out_.counts.emplace_back(named.id, CountWord{named.generation, named.round});
    out_.counts_for_sets = out_.counts_for_sets || named.set->number != core::kGlobalSet;
  }
  /// Publishes the name's submission whole.
  void declare(Name& named);
  /// An id that this rank has counted means nothing any more.
  void clear_word(core::TensorId id) { out_.counts.emplace_back(id, CountWord{}); }

  /// Whether the request may miss a rank that has left, or that has joined and will not make it.
  [[nodiscard]] bool lacks_somebody(const Name& named) const {
    if (named.members.empty()) return named.set->has_departed;
    return (named.set->has_departed && departed_.has_any(named.members)) || named.set->absent.any_of(named.members);
  }
  void ask(const Name& named, double waited_s, bool deadline, bool asked = false);
  /// Asks whether the last call of the set's sequence misses a rank that has left.
  void ask(const Set& set);

  /// Not between `join` and `RankJoined`: the sequencer concludes from this count that earlier messages have come, but
  /// a count can overtake a message.
  void publish_completed(const Set& set);
  void count_steps(Set& set, std::uint64_t steps);
  /// The program has dropped the set.
  void drop(Set& set) {
    set.is_dropped = true;
    finish_dropped(set);
  }
  /// Reports that this rank is done with a set that its program has dropped, once that is true.
  void finish_dropped(Set& set);

 private:
  const std::int32_t rank_;
  Names& names_;
  const DepartedRanks& departed_;
  ParticipantCounters& counters_;
  Outbox out_;
};

}  // namespace kolo::control::participant
