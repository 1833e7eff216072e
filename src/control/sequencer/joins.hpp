// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data (messages.hpp, "Joining"): what each has in flight when it joins, and when the join ends.
//
// A rank that has joined counts as having submitted everything; what it did submit before is known from its `Joined`
// alone (`Set::absent`, `Set::sequence`). The rank says it as of the entry that it had read; what the log has run or
// failed since is struck out, and what is left the log says to all (`RankJoined`). While a rank is absent the set has
// no plan.
//
//   the end   When all members have joined, nobody will submit what only some of them have: that counts as complete,
//             and runs. The join ends (`JoinEnded`) when nothing of it is left, and no call that a member had made.
//   leaving   A member that leaves, joined or not, ends the join with an error, and nothing later in the set can run.
#pragma once

#include <vector>

#include "control/sequencer/batches.hpp"
#include "control/sequencer/naming.hpp"
#include "control/sequencer/questions.hpp"

namespace kolo::control::sequencer {

class Joins {
 public:
  Joins(Log& log, TensorTable& tensors, SetTable& sets, Departures& departures, Plans& plans, Batches& batches,
        Naming& naming, Questions& questions)
      : log_(log), tensors_(tensors), sets_(sets), departures_(departures), plans_(plans), batches_(batches),
        naming_(naming), questions_(questions) {}

  void on(const Joined& message);
  /// Whether all members of some set have joined, and what they had submitted has not run.
  [[nodiscard]] bool are_ending() const noexcept { return !ending_.empty(); }
  /// Ends the joins of which everything has run.
  void end_joins();
  /// A member has left. What has been said without the absent is on its way up, so nothing can be believed any more.
  void end_join_without(Set& set);

 private:
  /// Whether the log has run or failed it since the rank had read so many entries.
  [[nodiscard]] bool is_over(const Set& set, const Joined::Submission& submission, std::uint64_t read) const;
  /// All members have joined: nobody will submit what only some of them have.
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
