// SPDX-License-Identifier: Apache-2.0
//
// The one that decides: hears from the root's relay what all members have said, and appends to the log. A pure state
// machine; time is an argument. The rules it keeps are those of docs/architecture.md, "Negotiation".
//
//   naming     a declaration on which all agree assigns an id (or a new generation of the name's id) and is ready at
//              once; one on which they disagree fails that round on every member, with the same sentence: the tensor,
//              what differs, which ranks said what. Ids are evicted least recently used first, never a ready one.
//   flushing   ready tensors of a set are appended in the order in which they became ready, as one batch up to the
//              fusion threshold, while the slowest member has fewer than `open_batches` open; what becomes ready
//              meanwhile gathers.
//   priorities of what has gathered the highest priority goes first, and of equal ones what became ready first; a batch
//              takes the most urgent ones and is filled up with the next. A planned batch has the highest priority of
//              its members (planner.hpp says how they are chosen), unnamed calls have 0. It is this queue alone that
//              heeds priorities: what is in the log runs in the order of the log, so an urgent tensor waits for
//              `open_batches` batches at most, and sets do not wait for each other. What has seen `patience` batches
//              of its set go ahead of it goes next, whatever its priority: nothing waits for ever.
//   plans      once a step repeats the last one's tensors, its order is cut into batches by the threshold and frozen;
//              from then on each batch is one short entry when all its members are ready. An `Interest`, or a warning
//              about a tensor that only waits for its batch, breaks the plan: what is ready is appended, the place is
//              remembered as a cut, and the plan is learned anew. A new generation, a failed member, an eviction and a
//              member that leaves void it (planner.hpp).
//   waits      an `Overdue` becomes a `Query`. For a warning every node answers who of its ranks is missing
//              (`Missing`), and `Stalled` says so. At the deadline every member answers by itself (`Answer`); answers
//              that do not come are waited for `latch_timeout_s`. The error names, in this order:
//                1. the ranks that are silent: they are stopped, or kept from running. What a rank says passes through
//                   its leader, and through the leaders on the way to the root; of several silent ranks on one way only
//                   the one next to the root is named, because the others may have answered.
//                2. if all have answered, the ranks that have not submitted, and what they wait for instead;
//                3. if all have submitted, the ranks whose open batches wait for no other rank;
//                4. if there is none, which rank waits for which.
//              If no batch is open any more, the wait is over, and there is no error.
//   sets       a request that names its members, on which they agree, makes a set; one that all members have dropped is
//              removed (messages.hpp).
//   joining    a rank that has joined counts as having submitted everything; what it did submit before is known from
//              its `Joined` alone. When all members have joined, what they submitted runs, and the join ends. A member
//              that leaves ends it with an error (messages.hpp).
//   leaving    `RankLeft` tells the others, who ask at once about what they have in flight with that rank: if it is
//              missing, the submission fails. Why ask, and not fail everything in flight? Because the rank may have
//              submitted before it left, and then the submission runs; only its own node knows. A
//              node's answer counts for the ranks that had left when it came; for those that left since, it is asked
//              again.
//   errors     the first fatal one ends the log.
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
  [[nodiscard]] bool waits_for_room() const noexcept;
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
