// SPDX-License-Identifier: Apache-2.0
//
// Which process sets there are (messages.hpp, "Members"). A request that names its members, on which they agree, makes
// a set; one that all members have dropped is removed.
//
// A set is refused if its members give different orders of ranks, if a member is in `sets_per_rank` sets already, or if
// there is no row of reserved ids for it. It fails if it was given up, because a member had left without asking for it
// (failures.hpp).
//
// When the last member has dropped a set, nothing of it is in flight anywhere; what says otherwise is refused by an
// Error. What the other parts have kept of the set goes with it.
#pragma once

#include <cstdint>
#include <vector>

#include "control/sequencer/call_order.hpp"
#include "control/sequencer/failures.hpp"
#include "control/sequencer/plans.hpp"
#include "control/sequencer/questions.hpp"

namespace kolo::control::sequencer {

class SetMaker {
 public:
  SetMaker(const SequencerOptions& options, Log& log, TensorTable& tensors, SetTable& sets,
           const Departures& departures, Failures& failures, ReadySets& ready, Plans& plans, CallOrder& calls,
           Questions& questions)
      : options_(options), log_(log), tensors_(tensors), sets_(sets), departures_(departures), failures_(failures),
        ready_(ready), plans_(plans), calls_(calls), questions_(questions),
        memberships_(static_cast<std::size_t>(options.size), 0) {}

  /// All its members have asked for it.
  void make_set(const Declared& message);
  /// Every member has done with it.
  void remove_set(Set& set);

 private:
  void note_departed(Set& set, std::int32_t rank);

  const SequencerOptions& options_;
  Log& log_;
  TensorTable& tensors_;
  SetTable& sets_;
  const Departures& departures_;
  Failures& failures_;
  ReadySets& ready_;
  Plans& plans_;
  CallOrder& calls_;
  Questions& questions_;
  std::vector<std::uint32_t> memberships_;  ///< by rank: in how many sets but the world
};

}  // namespace kolo::control::sequencer
