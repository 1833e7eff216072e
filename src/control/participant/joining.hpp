// SPDX-License-Identifier: Apache-2.0
//
// Joining (messages.hpp) on one rank. From `RankJoined` on this rank is absent. What the log then runs or fails without
// it counts as a round of its name, whose record is made if there is none, so that its rounds agree with the others'
// when it returns. Between `join` and that entry nothing can run without it. `Joined` lists what is in flight while the
// rank joins; that is not sent again after an eviction.
//
// The ranks that contribute nothing are the same for all members of a batch, and every rank knows them from the log.
#pragma once

#include <cstdint>
#include <vector>

#include "control/participant/planned_parts.hpp"
#include "control/participant/publisher.hpp"
#include "control/participant/sequences.hpp"

namespace kolo::control::participant {

class Joining {
 public:
  Joining(std::int32_t rank, Names& names, DepartedRanks& departed, Publisher& publisher, const PlannedParts& plans,
          Sequences& calls, const ParticipantCounters& counters)
      : rank_(rank), names_(names), departed_(departed), publisher_(publisher), plans_(plans), calls_(calls),
        counters_(counters) {}

  /// This rank joins in a set in which it may submit. See `Participant::join`.
  NameId join(Set& set, core::Round calls, bool counts);
  /// The log runs a member of a batch while some ranks, perhaps this one, are absent. Adds the member to the end of
  /// `batch`.
  void run_without_some(Set& set, NameId named, RunBatch& batch);

  void on(const RankJoined& entry);
  void on(const JoinEnded& entry, std::vector<Action>& actions);

 private:
  const std::int32_t rank_;
  Names& names_;
  DepartedRanks& departed_;
  Publisher& publisher_;
  const PlannedParts& plans_;
  Sequences& calls_;
  const ParticipantCounters& counters_;
};

}  // namespace kolo::control::participant
