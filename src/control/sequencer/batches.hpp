// SPDX-License-Identifier: Apache-2.0
//
// What becomes ready, and when it is appended: which batches the log has, and in which order.
//
// What is heard makes tensors *ready*; what is ready stands in its set's queue (ready_sets.hpp); what the backends have
// space for is taken from the queue and appended.
//
//   space        Ready tensors of a set are appended in the order in which they became ready, as one batch up to the
//               fusion threshold, while the slowest member has fewer than `open_batches` open; what becomes ready
//               meanwhile gathers.
//   priorities  Of what has gathered the highest priority goes first, and of equal ones what became ready first; a
//               batch takes the most urgent ones and is filled up with the next. A planned batch has the highest
//               priority of its members (planner.hpp says how they are chosen), unnamed calls have 0. It is this queue
//               alone that heeds priorities: what is in the log runs in the order of the log, so an urgent tensor waits
//               for `open_batches` batches at most, and sets do not wait for each other.
//   patience    What has seen `patience` batches of its set go ahead of it goes next, whatever its priority: nothing
//               waits for ever.
//   joining     While a rank is absent, all members of a batch have the same contributors.
//
// A tensor is ready, or in the log, or neither, and is counted again only after its batch. Nothing is decided by the
// time at which something was heard, except what stands together in a batch outside a plan.
#pragma once

#include <cstdint>

#include "control/sequencer/call_order.hpp"
#include "control/sequencer/failures.hpp"
#include "control/sequencer/log.hpp"
#include "control/sequencer/plans.hpp"
#include "control/sequencer/ready_sets.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class Batches {
 public:
  Batches(const SequencerOptions& options, Log& log, TensorTable& tensors, SetTable& sets, Failures& failures,
          ReadySets& ready, Plans& plans, CallOrder& calls)
      : options_(options), log_(log), tensors_(tensors), sets_(sets), failures_(failures), ready_(ready), plans_(plans),
        calls_(calls) {}

  /// Every member has submitted this round.
  void become_ready(Set& set, core::TensorId id, core::Round round);

  /// Appends what there is space for, in all sets.
  void flush_waiting();
  /// Appends what there is space for; `without_limit`: everything that is ready.
  void flush(Set& set, bool without_limit = false);
  /// The set, or the log, is about to end. What all members have submitted still runs; the backends' space does not
  /// matter any more.
  void flush_out(Set& set);
  /// A member is gone: nothing that the set has not run can run any more.
  void desert(Set& set);

  /// Whether something ready waits until a batch has been completed.
  [[nodiscard]] bool waits_for_completion() const;

 private:
  [[nodiscard]] bool begins_step(const Set& set, const Queued& next) const;
  void append_planned(Set& set, std::uint32_t number);
  void append_batch(Set& set);
  void take(Set& set, core::TensorId id);

  const SequencerOptions& options_;
  Log& log_;
  TensorTable& tensors_;
  SetTable& sets_;
  Failures& failures_;
  ReadySets& ready_;
  Plans& plans_;
  CallOrder& calls_;
  std::uint64_t readied_ = 0;  ///< how often something has become ready
};

}  // namespace kolo::control::sequencer
