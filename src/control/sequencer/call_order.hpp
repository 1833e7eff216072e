// SPDX-License-Identifier: Apache-2.0
//
// Calls without a name (messages.hpp, "Sequences"): which of a set's next calls are one batch, which fail, and
// which can never run.
//
// Calls have a queue of their own (call_queue.hpp), for they run in the order of their numbers. The set's queue holds
// one place for it, of priority 0, while it is not empty; when it comes to the front, one batch is appended, and what
// is left goes to the end.
//
// A member that leaves has said how far it had come (`Departed`): no call beyond that can run. That is said once
// somebody has made one (`SequenceEnded`), or at once, if somebody had.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/sequencer/departures.hpp"
#include "control/sequencer/log.hpp"
#include "control/sequencer/ready_sets.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class CallOrder {
 public:
  CallOrder(const SequencerOptions& options, Log& log, SetTable& sets, Departures& departures, ReadySets& ready)
      : options_(options), log_(log), sets_(sets), departures_(departures), ready_(ready) {}

  void on(SequenceGrown message);
  /// Appends what fails of the next calls, and one batch, if there is one. What is left queues again.
  void append_calls(Set& set);
  /// Some member waits for this call, in a set with a rank that has left.
  void note_asked(Set& set, core::Round call);
  /// Later calls cannot run.
  void cut_sequence(Set& set, core::Round last);
  /// A member is gone: no call can run that is not in the log.
  void desert(Set& set);

 private:
  /// Says that calls will never be complete, if somebody has made one.
  void end_sequence(Set& set);

  const SequencerOptions& options_;
  Log& log_;
  SetTable& sets_;
  Departures& departures_;
  ReadySets& ready_;
};

}  // namespace kolo::control::sequencer
