// SPDX-License-Identifier: Apache-2.0
//
// The sequencer's state of one set. Each group of members names the part that writes it; other parts only read it.
// Plain data, no threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/absentees.hpp"
#include "control/sequencer/call_queue.hpp"
#include "control/sequencer/past_names.hpp"
#include "control/sequencer/planner.hpp"
#include "control/sequencer/ready_queue.hpp"
#include "control/sequencer/request.hpp"
#include "control/sequencer/tensor_table.hpp"

namespace kolo::control::sequencer {

struct Plan {
  Plan(std::uint32_t plan, Planner::Batches cut)
      : number(plan), batches(std::move(cut)), ready(batches.size(), 0), priorities(batches.size(), 0) {}
  std::uint32_t number;
  Planner::Batches batches;
  std::vector<std::size_t> ready;        ///< ready members, by batch
  std::vector<std::int32_t> priorities;  ///< the highest priority of a member, by batch
  /// One more member of the batch is ready. Returns whether all are now.
  bool note_ready(std::uint32_t batch) { return ++ready[batch] == batches[batch].size(); }
  [[nodiscard]] bool is_complete(std::size_t batch) const { return ready[batch] == batches[batch].size(); }
};

struct Set {
  Set(core::SetId id, TensorTable& tensors, std::int64_t threshold) : number(id), planner(id, tensors, threshold) {}

  // The set's number, constant from `SetAdded` to `SetRemoved` (set_maker.hpp).
  core::SetId number;
  core::TensorId base = 0;
  std::vector<std::int32_t> members;  ///< ascending
  std::vector<std::int32_t> order;    ///< the same, in the set's order
  std::string words;                  ///< the group's text in messages; empty for the world

  // Ready requests, and their batches (batches.hpp).
  ReadyQueue queue;
  bool waits = false;  ///< whether it is in `ReadySets`; every set whose queue is not empty is
  std::uint64_t appended = 0;
  std::uint64_t completed = 0;
  // What was ready when there was no space: requests by `Tensor::came`, calls by number.
  std::uint64_t held = 0;
  core::Round held_calls = 0;

  // Steps (plans.hpp).
  std::uint64_t steps = 0;  ///< ends of step that were received; without any, a step ends when a name repeats
  bool ends = false;        ///< the set, or the log, is about to end: no new plan begins
  Planner planner;
  std::optional<Plan> plan;

  // Calls without a name (call_order.hpp).
  CallQueue sequence;

  // Names that have no id any more (naming.hpp).
  PastNames over;

  // Joining (joins.hpp).
  Absentees absent;
  std::int32_t last = -1;        ///< the rank that joined last
  std::uint64_t most_steps = 0;  ///< the most steps that one of them has ended
  core::Round most_calls = 0;    ///< the most calls without a name that one of them has made
  std::uint64_t joins = 0;       ///< how many joins have ended

  // Leaving (departures.hpp).
  bool has_departed = false;  ///< some member has
  bool has_gone = false;      ///< some member has left, and its process has ended or cannot be reached
};

/// The join that its members wait for now, or that is the next one.
inline Request join_in(const Set& set) { return {set.number, "", set.joins + 1, {}, true}; }

}  // namespace kolo::control::sequencer
