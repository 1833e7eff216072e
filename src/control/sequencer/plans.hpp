// SPDX-License-Identifier: Apache-2.0
//
// Plans: a set's batches of a step, frozen. planner.hpp decides what a plan contains; this class decides when it begins
// and ends.
//
// A planned tensor is not queued by itself: its batch is, when the last member has become ready. A set's queue
// therefore holds tensors and planned batches. When a plan is voided, its ready members are queued by themselves.
//
//   begin    Once a step repeats the last one's tensors, its order is cut into batches by the threshold; from then on
//            each batch is one short entry. No plan begins in a set that a member has left or joined in, and none in
//            one that is about to end.
//   break    An `PartAwaited`, or a warning about a tensor that only waits for its batch (`unblock`), breaks the plan:
//            what is ready is appended, the place is remembered as a cut, and the plan is learned anew.
//   void     A new generation, a failed member, an eviction, and a rank that joins or leaves void the plan (`PlanEnd`).
//            Code that makes such a change calls `void_plan` first.
//
// A set has one plan at most. While it has one, its ready members that are not in the queue are counted in
// `Plan::ready`.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "control/sequencer/log_writer.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class Plans {
 public:
  Plans(const SequencerOptions& options, Log& log, TensorTable& tensors, SetTable& sets, ReadySets& ready)
      : options_(options), log_(log), tensors_(tensors), sets_(sets), ready_(ready) {}

  void on(const PartAwaited& message);
  /// The set's step ends here; defines a plan when one is due.
  void end_step(Set& set);
  /// The set must have a plan. Its ready members are queued by themselves: those of complete batches in their batch's
  /// place, the others at the end.
  void void_plan(Set& set, PlanEnd why);
  /// Breaks the plan if a planned batch holds up this tensor, which every member has submitted.
  void unblock(Set& set, core::TensorId id);

 private:
  void define_plan(Set& set, const Planner::Batches& batches);
  void break_plan(Set& set, std::uint32_t batch, const std::vector<core::TensorId>& lacking);

  const SequencerOptions& options_;
  Log& log_;
  TensorTable& tensors_;
  SetTable& sets_;
  ReadySets& ready_;
  std::map<std::uint32_t, core::SetId> plan_owner_;
  std::uint32_t next_plan_ = 0;
};

}  // namespace kolo::control::sequencer
