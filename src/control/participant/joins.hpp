// SPDX-License-Identifier: Apache-2.0
//
// Joining (messages.hpp), seen from a rank: from `RankJoined` on this rank is absent, and what the log runs or fails
// without it counts as a round of its slot, which is opened if there is none. So when it returns its rounds are the
// others'. Between `join` and that entry nothing can run without it. What is in flight while it joins has been said in
// `Joined`, and is not said again after an eviction.
//
// The ranks that contribute nothing are the same for all members of a batch, and everybody knows them from the log.
#pragma once

#include <cstdint>
#include <vector>

#include "control/participant/own_calls.hpp"
#include "control/participant/planned_parts.hpp"
#include "control/participant/publisher.hpp"

namespace kolo::control::participant {

class Joins {
 public:
  Joins(std::int32_t rank, SlotTable& slots, DepartedRanks& departed, Publisher& publisher, const PlannedParts& plans,
        OwnCalls& calls, const ParticipantCounters& counters)
      : rank_(rank), slots_(slots), departed_(departed), publisher_(publisher), plans_(plans), calls_(calls),
        counters_(counters) {}

  /// This rank joins in a set that it may submit to. See `Participant::join`.
  SlotId join(Set& set, core::Round calls, bool counts);
  /// The log runs a member of a batch while some are absent; this rank may be one of them. `batch` ends with it.
  void run_without_some(Set& set, SlotId slot, RunBatch& batch);

  void on(const RankJoined& entry);
  void on(const JoinEnded& entry, std::vector<Action>& actions);

 private:
  const std::int32_t rank_;
  SlotTable& slots_;
  DepartedRanks& departed_;
  Publisher& publisher_;
  const PlannedParts& plans_;
  OwnCalls& calls_;
  const ParticipantCounters& counters_;
};

}  // namespace kolo::control::participant
