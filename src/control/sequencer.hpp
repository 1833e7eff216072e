// SPDX-License-Identifier: Apache-2.0
//
// The sequencer decides: it gets from the root's relay what all members have submitted, and appends to the log. A pure
// state machine; time is an argument. Its rules are those of docs/architecture.md, "Negotiation". It has a part for
// each kind of decision, in src/control/sequencer/; the headers there have the rules in full.
//
//   naming         which id means which name under which signature; ids are evicted least recently used first.
//                  `opinions`: whether what every member has submitted can run, or fails because they disagree.
//   batches        what is ready, when it is appended, and in which order: fusion, priorities, patience.
//                  `ReadySets`: the queues, by set (set_table.hpp). batches.hpp says who decides which tensors share a
//                  batch.
//   plans          when a set's batches of a step are frozen, and when that ends (what a plan holds: planner.hpp).
//   call_order     calls without a name, which run in the order of their numbers.
//   set, set_table what is known of each process set; sequencer.cpp says which there are.
//   joined_ranks   ranks that are out of data while the others go on.
//   questions      long waits: warnings, deadlines, and which ranks the error names.
//   departures     which ranks have left. `Failures`: what fails because of that, while the job goes on.
//   log_writer     the decisions. The first fatal error ends it.
//
// Messages must be given in the order in which the root's relay sent them. A message with a generation that has ended
// is dropped; its sender sends it again when it reads the log. An invalid message is refused by an Error (ranges.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "control/messages.hpp"
#include "core/topology.hpp"

namespace kolo::control {

struct SequencerOptions {
  int size = 1;                              ///< ranks of the world
  std::int64_t fusion_threshold = 16 << 20;  ///< bytes; 0: every tensor on its own
  std::uint64_t open_batches = 4;
  std::uint64_t patience = 256;   ///< how many batches may overtake a request because of their priority
  std::uint32_t capacity = 8192;  ///< ids, reserved ones included
  /// In how many sets, besides the world, a rank can be a member at once.
  std::uint32_t sets_per_rank = core::kMostSets;
  bool plan = true;
  double latch_timeout_s = 5;  ///< how long to wait for the answers to a question
  /// What `speakers` says. Empty: no rank passes on messages of others.
  std::vector<std::int32_t> speaks_through;
};

/// By rank, the rank that passes its messages on to the root: its node's leader, and for a leader that of the node
/// above in the control tree; -1 for rank 0.
std::vector<std::int32_t> speakers(const core::Topology& topology, int fanout);

struct SequencerCounters {
  std::uint64_t messages = 0;  ///< heard
  std::uint64_t entries = 0;   ///< appended
  std::uint64_t plans_broken = 0;
  std::uint64_t evictions = 0;
  std::uint64_t stalls = 0;
};

class Sequencer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Sequencer(const SequencerOptions& options);
  ~Sequencer();
  Sequencer(const Sequencer&) = delete;
  Sequencer& operator=(const Sequencer&) = delete;

  void on_message(const UpMessage& message, Time now);
  /// Decides about the messages so far. Call it after a group of messages, and at `next_deadline`.
  void decide(Time now);
  /// Whether a ready request waits for a batch to complete: then the completed counts are urgent.
  [[nodiscard]] bool waits_for_completion() const noexcept;
  /// When `decide` must be called again even without a message (an unanswered question); Time::max() for never.
  [[nodiscard]] Time next_deadline() const noexcept;

  /// The new entries of the log, in order; the caller takes them and clears it.
  [[nodiscard]] std::vector<LogEntry>& outbox() noexcept;
  [[nodiscard]] const SequencerCounters& counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::control
