// SPDX-License-Identifier: Apache-2.0
//
// Calls without a name (messages.hpp, "Sequences"): which of a set's next calls are one batch, which fail, and
// which can never run.
//
// Calls have a queue of their own (`CallQueue`, set.hpp), because they run in the order of their numbers. While it is
// not empty, it has one place of priority 0 in the set's queue. When that place comes to the front, one batch is
// appended, and a place for the rest goes to the end.
//
// A member that leaves says how many calls it has made (`Departed`): no later call can run. The log says so
// (`SequenceEnded`) as soon as a member has made a later call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/sequencer/departures.hpp"
#include "control/sequencer/log_writer.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class CallOrder {
 public:
  CallOrder(const SequencerOptions& options, Log& log, SetTable& sets, Departures& departures, ReadySets& ready)
      : options_(options), log_(log), sets_(sets), departures_(departures), ready_(ready) {}

  void on(SequenceGrown message);
  /// Appends the next calls: those that fail, and then one batch if there is one. The rest is queued again.
  void append_calls(Set& set);
  /// A member waits for this call, and a rank of the set has left.
  void note_asked(Set& set, core::Round call);
  /// A member leaves: calls after `last` cannot run, and all up to `passed` are over.
  void cut_sequence(Set& set, core::Round last, core::Round passed);
  /// A member is gone: calls that are not in the log cannot run.
  void give_up(Set& set);

 private:
  /// Appends `SequenceEnded` if a member has made a call that will never be complete.
  void end_sequence(Set& set);

  const SequencerOptions& options_;
  Log& log_;
  SetTable& sets_;
  Departures& departures_;
  ReadySets& ready_;
};

}  // namespace kolo::control::sequencer
