// SPDX-License-Identifier: Apache-2.0
//
// Plans on one rank: which members of a planned batch the rank has submitted, and when it must report that some are
// lacking.
//
// A planned batch is *partial* here while this rank has submitted some of its members and not all. While the program
// waits for something, each partial batch is reported by an `PartAwaited`, once in each such state.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "control/participant/publisher.hpp"

namespace kolo::control::participant {

class PlannedParts {
 public:
  PlannedParts(std::int32_t rank, Names& names, Publisher& publisher, ParticipantCounters& counters)
      : rank_(rank), names_(names), publisher_(publisher), counters_(counters) {}

  void on(const PlanDefined& entry);
  void on(const PlanVoided& entry, std::vector<Action>& actions);
  void on(const PlannedBatch& entry, std::vector<Action>& actions);
  [[nodiscard]] bool has_plan(const Set& set) const;

  /// One more member of the batch has been submitted. An earlier report is out of date: the sequencer ignores a report
  /// whose first lacking member has come meanwhile.
  void enter(PlannedPart& part) {
    if (part.partial() && !part.reported) --unreported_;
    ++part.submitted;
    part.reported = false;
    if (part.partial()) ++unreported_;
  }
  /// Whether there is something that `report_awaited` would report.
  [[nodiscard]] bool has_unreported() const noexcept { return unreported_ > 0; }
  void report_awaited();

 private:
  struct Plan {
    core::SetId set = 0;
    Set* owner = nullptr;              ///< the set, which stays as long as it has a plan
    std::vector<PlannedPart> batches;  ///< empty when this rank is no member of the set
  };

  /// None of the batch's members is in flight any more, or the plan has ended.
  void consume(PlannedPart& part) {
    if (part.partial() && !part.reported) --unreported_;
    part.submitted = 0;
    part.reported = false;
  }
  [[nodiscard]] PartAwaited awaited_part(const PlannedPart& part) const;

  const std::int32_t rank_;
  Names& names_;
  Publisher& publisher_;
  ParticipantCounters& counters_;
  std::map<std::uint32_t, Plan> plans_;
  std::size_t unreported_ = 0;  ///< planned batches that are partial here and not reported
};

}  // namespace kolo::control::participant
