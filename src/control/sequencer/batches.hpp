// SPDX-License-Identifier: Apache-2.0
//
// Which batches the log gets, when, and in which order.
//
// A tensor becomes *ready* when all members have submitted it. It then enters its set's queue (`ReadySets`). When the
// backends have space, requests are taken from the queue and appended.
//
// Which tensors share a batch is decided here and there; this table has all of it.
//
//   who decides                    which tensors share a batch
//   ---------------------------    -----------------------------------------------------------------------------------
//   the program                    Those of a grouped call always do: they are one request. Those of two sets never do.
//   BatchSpace::takes              In every batch: one kind of collective, if that kind shares batches at all, up to
//                                  the fusion threshold; of tensors whose rows differ by rank at most 64, none on a
//                                  device.
//   Batches::append_batch          Outside a plan: what stands next in the set's queue when there is space.
//   Batches::begins_step           Without end_step(): a batch ends before a name that the step has had already.
//   Planner::cut                   In a plan: what repeats from step to step, in the order of the last step, but for
//                                  learned cuts. With priorities: in the order in which they became ready, and none
//                                  that is less urgent than one before it.
//   Plans::break_plan              If a rank waits for a part of a planned batch, the plan ends, and a cut is learned.
//   CallOrder::append_calls        Calls without a name: the next ones in the order of their numbers. Never with names.
//   Absentees::without             While a rank is absent: only those with the same contributors, and nothing is
//                                  planned.
//   Submitter::take_shortcut       A call that avoids the log (engine) is in no batch.
//
// What shares a batch may still be parted where it is moved: into runs (data/layout.hpp) and a device's portions.
//
//   space       Ready tensors of a set are appended in the order in which they became ready, while the slowest member
//               has fewer than `open_batches` open; what becomes ready meanwhile gathers.
//   priorities  In the queue the highest priority goes first, and among equals what became ready first; a batch takes
//               the most urgent tensors and is filled up with the next. A planned batch has the highest priority of its
//               members (planner.hpp says how they are chosen), unnamed calls have 0. Only this queue uses priorities:
//               the log runs in its own order, so an urgent tensor waits for `open_batches` batches at most, and sets
//               do not wait for each other.
//   patience    A request that `patience` batches of its set have overtaken goes next, whatever its priority.
//   waiting     A batch says for which rank it waited: the last of its newest tensor. It says none if that was ready
//               when there was no space.
//
// A tensor is ready, or in the log, or neither, and its next round counts only after its batch. The time at which
// messages come decides only which tensors share a batch outside a plan.
#pragma once

#include <cstdint>

#include "control/sequencer/call_order.hpp"
#include "control/sequencer/departures.hpp"
#include "control/sequencer/log_writer.hpp"
#include "control/sequencer/plans.hpp"
#include "control/sequencer/set_table.hpp"

namespace kolo::control::sequencer {

class Batches {
 public:
  Batches(const SequencerOptions& options, Log& log, TensorTable& tensors, SetTable& sets, Failures& failures,
          ReadySets& ready, Plans& plans, CallOrder& calls)
      : options_(options), log_(log), tensors_(tensors), sets_(sets), failures_(failures), ready_(ready), plans_(plans),
        calls_(calls) {}

  /// Every member has submitted this round, and this rank was the last (-1: unknown).
  void become_ready(Set& set, core::TensorId id, core::Round round, std::int32_t last);

  /// Appends batches in all sets, as far as there is space.
  void flush_waiting();
  /// Appends batches as far as there is space; `without_limit`: everything that is ready.
  void flush(Set& set, bool without_limit = false);
  /// The set, or the log, is about to end. Everything that all members have submitted is appended, whatever space the
  /// backends have.
  void flush_out(Set& set);
  /// A member is gone: requests of the set that are not in the log cannot run any more.
  void give_up(Set& set);

  /// Whether a ready request waits for a batch to complete.
  [[nodiscard]] bool waits_for_completion() const;

 private:
  [[nodiscard]] bool begins_step(const Set& set, const Queued& next) const;
  void append_planned(Set& set, std::uint32_t number);
  void append_batch(Set& set);
  void append_member(Set& set, core::TensorId id, const Tensor*& newest);
  [[nodiscard]] static std::int32_t awaited(const Set& set, const Tensor& newest);

  const SequencerOptions& options_;
  Log& log_;
  TensorTable& tensors_;
  SetTable& sets_;
  Failures& failures_;
  ReadySets& ready_;
  Plans& plans_;
  CallOrder& calls_;
  std::uint64_t readied_ = 0;  ///< how many requests have become ready
};

}  // namespace kolo::control::sequencer
