// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data (messages.hpp, "Joining"): what each has in flight when it joins, and when the join ends.
//
// A rank that has joined counts as having submitted everything. Only its `Joined` says what it had really submitted
// (`Set::absent`, `Set::sequence`), as of the last entry that it had read. What the log has run or failed since is
// removed, and the log tells the rest to all ranks (`RankJoined`). While a rank is absent the set has no plan.
//
//   the end   When all members have joined, no rank will complete a request that only some of them have submitted. Such
//             requests count as complete, and run. The join ends (`JoinEnded`) when none of them is left, and no call
//             that a member had made.
//   leaving   A member that leaves, joined or not, ends the join with an error, and nothing later in the set can run.
#pragma once

#include <vector>

#include "control/sequencer/batches.hpp"
#include "control/sequencer/naming.hpp"
#include "control/sequencer/questions.hpp"

namespace kolo::control::sequencer {

class JoinedRanks {
 public:
  JoinedRanks(Log& log, TensorTable& tensors, SetTable& sets, Departures& departures, Plans& plans, Batches& batches,
              Naming& naming, Questions& questions)
      : log_(log), tensors_(tensors), sets_(sets), departures_(departures), plans_(plans), batches_(batches),
        naming_(naming), questions_(questions) {}

  void on(const Joined& message);
  /// Whether there is a set whose members have all joined, while some of their submissions have not run yet.
  [[nodiscard]] bool are_ending() const noexcept { return !ending_.empty(); }
  /// Ends the joins whose submissions have all run.
  void end_joins();
  /// A member has left. Counts that were merged without the absent ranks may still be on their way up, so later counts
  /// of the set cannot be used.
  void end_join_without(Set& set);

 private:
  /// Whether the log has run or failed this submission since the rank had read `read` entries.
  [[nodiscard]] bool is_over(const Set& set, const Joined::Submission& submission, std::uint64_t read) const;
  /// All members have joined: requests that only some of them have submitted count as complete.
  void complete_rest(Set& set);
  void forget_join(Set& set);

  Log& log_;
  TensorTable& tensors_;
  SetTable& sets_;
  Departures& departures_;
  Plans& plans_;
  Batches& batches_;
  Naming& naming_;
  Questions& questions_;
  std::vector<core::SetId> ending_;  ///< sets whose members have all joined
};

}  // namespace kolo::control::sequencer
