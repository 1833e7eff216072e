// SPDX-License-Identifier: Apache-2.0
//
// Which process sets there are (messages.hpp, "Members"). A request that names its members makes a set if they agree on
// it. A set that all members have dropped is removed.
//
// A set is refused if its members give different orders of ranks, if a member is in `sets_per_rank` sets already, or if
// there is no row of reserved ids for it. It fails if it was given up, because a member had left without asking for it
// (`Failures`, departures.hpp).
//
// When the last member has dropped a set, nothing of it is in flight anywhere; a message that says otherwise is refused
// by an Error. The other parts then forget the set, too.
#pragma once

#include <cstdint>
#include <vector>

#include "control/sequencer/call_order.hpp"
#include "control/sequencer/departures.hpp"
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
  /// Every member has dropped it.
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
  std::vector<std::uint32_t> memberships_;  ///< by rank: in how many sets, besides the world, it is a member
};

}  // namespace kolo::control::sequencer
