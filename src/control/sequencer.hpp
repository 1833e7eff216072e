// SPDX-License-Identifier: Apache-2.0
//
// The one that decides: hears from the root's relay what all members have said, and appends to the log. A pure state
// machine; time is an argument. The rules it keeps are those of docs/architecture.md, "Negotiation". It has a part for
// each kind of decision, in src/control/sequencer/; the headers there have the rules in full.
//
//   naming         which id means which name under which signature; ids are evicted least recently used first.
//                  `agreement`: whether what every member has submitted can run, or fails because they disagree.
//   batches        what is ready, when it is appended, and in which order: fusion, priorities, patience.
//                  `ready_sets`: the queues, by set.
//   plans          when a set's batches of a step are frozen, and when that ends (what a plan holds: planner.hpp).
//   call_order     calls without a name, which run in the order of their numbers.
//   set_maker      which process sets there are. `set`, `set_table`: what is known of each.
//   joins          ranks that are out of data while the others go on.
//   questions      waits that last: warnings, deadlines, and whom the error names.
//   departures     which ranks have left. `failures`: what fails because of that, while the job goes on.
//   log            what has been decided. The first fatal error ends it.
//
// Messages must be given in the order in which the root's relay said them; what refers to a generation that is over is
// dropped, its sender says it again when he reads the log. What no rank of this world can say is refused by an Error
// (ranges.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "control/messages.hpp"

namespace kolo::control {

struct SequencerOptions {
  int size = 1;                              ///< ranks of the world
  int nodes = 1;                             ///< as many answers as a query gets
  std::int64_t fusion_threshold = 16 << 20;  ///< bytes; 0: every tensor on its own
  std::uint64_t open_batches = 4;
  std::uint64_t patience = 256;   ///< batches that go before something because of their priority
  std::uint32_t capacity = 8192;  ///< ids, reserved ones included
  /// So many sets, the world not counted, can a rank be a member of at once.
  std::uint32_t sets_per_rank = core::kMostSets;
  bool plan = true;
  double latch_timeout_s = 5;  ///< a query for a deadline is not waited for longer
  /// By rank, the rank that passes its words on to the root: a node's leader, and for a leader that of the node above;
  /// -1 for rank 0. Empty: nobody passes on anything.
  std::vector<std::int32_t> speaks_through;
};

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
  /// Decides on all that has been heard; call after a group of messages, and at `next_deadline`.
  void decide(Time now);
  /// Whether something ready waits until a batch has been completed: the completed counts are urgent then.
  [[nodiscard]] bool waits_for_completion() const noexcept;
  /// When `decide` must be called again though nothing was heard (an unanswered query); Time::max() for never.
  [[nodiscard]] Time next_deadline() const noexcept;

  /// The new entries of the log, in order; the caller takes them and clears it.
  [[nodiscard]] std::vector<LogEntry>& outbox() noexcept;
  [[nodiscard]] const SequencerCounters& counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::control
