// SPDX-License-Identifier: Apache-2.0
//
// What is known of one set. Each group of members belongs to the part that it names: that one writes it, the others
// read. Plain data, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/absentees.hpp"
#include "control/planner.hpp"
#include "control/sequence.hpp"
#include "control/sequencer/request.hpp"
#include "control/tensor_table.hpp"

namespace kolo::control::sequencer {

struct Queued {
  bool planned = false;  ///< a batch of the set's plan, by number; else a tensor, by id
  std::uint32_t which = 0;
  bool calls = false;  ///< instead: calls of the set's sequence
  std::int32_t priority = 0;
  std::uint64_t since = 0;  ///< batches of the set before it was queued
  [[nodiscard]] bool is_tensor() const noexcept { return !planned && !calls; }
};

/// Unnamed asynchronous calls.
struct Sequence {
  SequenceReceiver heard;
  std::deque<Calls> queue;                     ///< of these, what is not in the log
  core::Round run = 0;                         ///< what is
  core::Round last = ~core::Round{0};          ///< no later one can run: a rank has left that had come to here
  core::Round asked = 0;                       ///< the highest that a member in a set with such a rank has made
  std::map<std::int32_t, core::Round> joined;  ///< how far the absent ranks have come
  /// Those that have not made this call, ascending.
  [[nodiscard]] std::vector<std::int32_t> without(core::Round call) const {
    std::vector<std::int32_t> ranks;
    for (const auto& [rank, calls] : joined) {
      if (calls < call) ranks.push_back(rank);
    }
    return ranks;
  }
  /// Whether everything that the absent ranks had made is in the log.
  [[nodiscard]] bool is_done() const {
    return queue.empty() && std::all_of(joined.begin(), joined.end(), [this](auto& one) { return one.second <= run; });
  }
};

struct Plan {
  Plan(std::uint32_t plan, Planner::Batches cut)
      : number(plan), batches(std::move(cut)), ready(batches.size(), 0), priorities(batches.size(), 0) {}
  std::uint32_t number;
  Planner::Batches batches;
  std::vector<std::size_t> ready;        ///< members that are, by batch
  std::vector<std::int32_t> priorities;  ///< the highest of its members', by batch
};

/// A name that the log knows nothing of any more, and what it had come to.
struct Over {
  std::string name;
  core::Round round = 0;      ///< the last that was run or failed
  std::uint64_t entry = 0;    ///< of the log, from 1, which said so
  std::uint64_t batches = 0;  ///< of the set before it: when every member has completed more, all have read it
};

struct Set {
  Set(core::SetId id, TensorTable& tensors, std::int64_t threshold) : number(id), planner(id, tensors, threshold) {}

  // Which set it is; the same from its making to its end (set_maker.hpp).
  core::SetId number;
  core::TensorId base = 0;
  std::vector<std::int32_t> members;  ///< ascending
  std::vector<std::int32_t> order;    ///< the same, in the set's order
  std::string words;                  ///< the group, for people; empty: the world's

  // What is ready, and its batches (batches.hpp).
  std::deque<Queued> queue;
  bool waits = false;  ///< stands in `ReadySets`, as every set does whose queue is not empty
  std::uint64_t appended = 0;
  std::uint64_t completed = 0;

  // Steps (plans.hpp).
  std::uint64_t steps = 0;  ///< heard; a set that never says so has its steps recognised by repetition
  bool ends = false;        ///< the set, or the log, is about to end: there is no step that a plan could be for
  Planner planner;
  std::optional<Plan> plan;

  // Unnamed asynchronous calls (unnamed_calls.hpp).
  Sequence sequence;

  // Names that have lost their id (naming.hpp).
  std::deque<Over> over;

  // Joining (joins.hpp).
  Absentees absent;
  std::int32_t last = -1;        ///< of them, who joined
  std::uint64_t most_steps = 0;  ///< that one of them has ended
  core::Round most_calls = 0;    ///< unnamed ones that one of them has begun
  std::uint64_t joins = 0;       ///< that have ended

  // Leaving (departures.hpp).
  bool has_left = false;  ///< some member has
  bool has_gone = false;  ///< some member has left, and its process has ended or cannot be reached
};

/// The join that its members wait for now, or that is the next one.
inline Request join_in(const Set& set) { return {set.number, "", set.joins + 1, {}, true}; }

}  // namespace kolo::control::sequencer
