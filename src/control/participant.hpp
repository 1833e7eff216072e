// SPDX-License-Identifier: Apache-2.0
//
// A rank's part in negotiation, as a pure state machine: what its program submits goes in, what to publish comes out;
// log entries go in, what to execute comes out. No clock, no thread, no memory shared with anyone.
//
// A *slot* is this rank's record of one name in one set. A slot is in flight from `submit` until the action that runs
// or fails it has been handed out; the caller never submits it twice at once (the engine refuses that at the call).
//
// Publishing: a slot whose name has an id, and whose signature equals the one that the id means in its current
// generation, is submitted by a count (`Outbox::counts`); anything else by a whole `Declared` (`Outbox::messages`).
//
// A set other than the world's is asked for by its members alone (`ask_for_set`; messages.hpp). No `RunBatch` answers
// that: `SetMade` does (or `FailSlot`). A rank that has done with a set drops it.
//
// Calls without a name (`call`) have no slots: they are numbered, and run or fail in the order of their numbers
// (`RunCalls`, `FailCall`), but for the last ones of a rank, which fail together when another one has left
// (`FailLastCalls`). Some avoid the log (express.hpp): their numbers are missing here.
//
// A rank that is out of data joins (`join`; messages.hpp). Until the others have joined as well it submits nothing in
// that set, and executes what they do: a `RunBatch` names the ranks that contribute nothing (`absent`). When this rank
// is one of them, its slots in the batch are not in flight, and may have been opened by the log (`signature_of`).
// `JoinDone` ends that.
//
// A rank that has left will never submit again. Once the log has said so, what this rank has in flight or submits later
// in a set with that rank is asked about at once (an `Overdue` of zero seconds), and fails by `FailSlot` (rank_lost)
// when the rank that left is among those who are missing.
//
// An entry that no log of this world can hold is refused by an Error (ranges.hpp).
//
// Its parts are in src/control/participant/: the table of names (`slot_table`), what it says (`publisher`), plans
// (`planned_parts`), calls without a name (`own_calls`), joining (`joins`), and who has left (`departed_ranks`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <kolo/error.hpp>

#include "control/messages.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

using SlotId = std::uint32_t;

/// What to publish, in this order. Messages and counts may overtake each other on their way to the leader; `departed`
/// must not overtake anything, for when all ranks have left the log ends.
struct Outbox {
  std::vector<UpMessage> messages;
  std::vector<std::pair<core::TensorId, CountWord>> counts;
  /// Some of these submits to another set than the world. The root, which may be no member, must hear of it at once.
  bool counts_for_sets = false;
  std::optional<Departed> departed;
  [[nodiscard]] bool empty() const noexcept { return messages.empty() && counts.empty() && !departed; }
};

/// Execute these slots' submissions as one batch, in this order. The batch completes when the caller says `completed`.
struct RunBatch {
  core::SetId set = core::kGlobalSet;
  std::vector<SlotId> members;
  /// For a planned batch (plan + 1, number); plan_key 0 for any other. The same key always means the same members.
  std::uint32_t plan_key = 0;
  std::uint32_t number = 0;
  /// The set's members that contribute nothing, ascending: the operation's neutral element is their input.
  std::vector<std::int32_t> absent = {};
  std::size_t uncounted = 0;  ///< so many of them averages are not over
};
/// Execute so many calls of the set's sequence, the next ones, as one batch. It completes as that of `RunBatch` does.
struct RunCalls {
  core::SetId set = core::kGlobalSet;
  std::uint64_t calls = 0;
  std::vector<std::int32_t> absent = {};  ///< as above; when this rank is one of them, it has not made the calls,
  std::vector<SequenceAppended::Repeat> repeats = {};  ///< which are these
  std::size_t uncounted = 0;                           ///< as above
};
/// The next call of the set's sequence fails; the job goes on.
struct FailCall {
  core::SetId set = core::kGlobalSet;
  Status status;
};
/// The calls of the set's sequence that this rank has in flight fail, as far as their numbers are greater than `last`.
struct FailLastCalls {
  core::SetId set = core::kGlobalSet;
  core::Round last = 0;
  Status status;
};
/// This slot's submission fails; the job goes on.
struct FailSlot {
  SlotId slot = 0;
  Status status;
};
/// The slot's name was evicted while idle and forgotten: the SlotId may be given to another name by a later `open`.
struct ForgetSlot {
  SlotId slot = 0;
};
/// The plan's layouts may be dropped (plan_key as above).
struct DropPlan {
  std::uint32_t plan_key = 0;
};
/// A stall that the log reported: for a warning, or because a program asks.
struct ReportStall {
  Stalled stall;
};
/// A set was made that this rank has asked for.
struct SetMade {
  core::SetId set = core::kGlobalSet;
  std::vector<std::int32_t> members;  ///< in the set's order
  SlotId slot = 0;                    ///< the request, now complete
};
/// A join of this rank's has ended, and it may submit again.
struct JoinDone {
  core::SetId set = core::kGlobalSet;
  std::int32_t last = -1;  ///< all members have joined, this one after the others
  SlotId slot = 0;
  core::Round calls = 0;  ///< the number of the last call without a name of any member
  Status status = {};     ///< why it failed
};
/// All members have dropped it.
struct SetGone {
  core::SetId set = core::kGlobalSet;
};
/// The first fatal error: everything in flight fails with `status`, and so does everything later.
struct WorldFault {
  Status status;
  std::int32_t rank = -1;
};
/// All ranks have left. Batches handed out before still run; what is in flight beyond them will never run.
struct WorldClosed {};

/// Some rank is starved of what another node sent (transport/inter_node.hpp): push.
struct PushTransport {};

/// Somebody's deadline has passed: complete this answer by what the data plane does, and give it to
/// `Participant::answer`.
struct AnswerQuery {
  Answer answer;
};

using Action = std::variant<RunBatch, FailSlot, ForgetSlot, DropPlan, ReportStall, SetMade, SetGone, WorldFault,
                            WorldClosed, PushTransport, AnswerQuery, JoinDone, RunCalls, FailCall, FailLastCalls>;

struct ParticipantCounters {
  std::uint64_t bare = 0;             ///< submissions published as a count
  std::uint64_t declared = 0;         ///< submissions published whole
  std::uint64_t called = 0;           ///< calls of sequences
  std::uint64_t batches = 0;          ///< executed
  std::uint64_t planned_batches = 0;  ///< of these, by a plan's short entry
  std::uint64_t log_entries = 0;      ///< read
  std::uint64_t plans = 0;            ///< defined
  std::uint64_t plans_voided = 0;
  std::uint64_t mismatches = 0;
};

class Participant {
 public:
  /// `size` ranks in the world, at most `capacity` ids; the global set exists from the start, with base id 0.
  Participant(int rank, int size, std::uint32_t capacity = kMostIds);
  ~Participant();
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

  /// The slot of a name, made when it is new. The set must exist.
  SlotId open(core::SetId set, const std::string& name);
  /// Submits a slot that is not in flight. The same pointer as last time is the fast path: nothing is compared.
  void submit(SlotId slot, const std::shared_ptr<const core::Signature>& signature);
  /// Makes a call of the set's sequence, or several of one signature; the number of the first. The same pointer as last
  /// time is the fast path. Numbers grow. Those that are missing have avoided the log, with nothing in flight there.
  void call(core::SetId set, const std::shared_ptr<const core::Signature>& signature, core::Round first,
            std::uint64_t count = 1);
  /// All calls of the set's sequence up to this one are over here, in the log or past it. Before `leave`.
  void pass(core::SetId set, core::Round last);
  /// A call of the set's sequence, in flight, has waited for `waited_s` seconds; `running`: its batch has been handed
  /// out.
  void overdue_call(core::SetId set, core::Round call, core::CollectiveKind kind, double waited_s, bool deadline,
                    bool running);
  /// Asks for a set of these ranks, in this order, this one among them. Not while such a request of the same ranks and
  /// name is in flight. The slot ends with the request.
  SlotId ask_for_set(const std::vector<std::int32_t>& ranks, const std::string& name);
  /// This rank submits nothing more in the set until all members have joined. What is in flight there goes on. The slot
  /// ends with the join. `calls`: the number of its last call without a name, where that has avoided the log. `counts`:
  /// averages are over it all the same.
  SlotId join(core::SetId set, core::Round calls = 0, bool counts = false);
  /// This rank submits nothing more in the set, once. What is in flight there goes on, and the set with it.
  void drop(core::SetId set);
  /// One more batch of the set is complete here. (A set is not gone while it has open batches.)
  void completed(core::SetId set);
  void end_step(core::SetId set);
  /// Whether some thread of this rank is blocked on, or has asked about, an unfinished handle. While it is, a planned
  /// batch that this rank has submitted in part is reported by `PartAwaited`, once in each such state. Looked at when
  /// the outbox is taken: take it after a group of submissions, not between them, or a batch seems partial that is not.
  void set_awaiting(bool awaiting);
  /// A slot's submission, in flight, has waited for `waited_s` seconds; a join, since the set's last batch.
  void overdue(SlotId slot, double waited_s, bool deadline);
  /// The program asks who has not submitted what this rank has waited for; `ReportStall` says so, if anybody has not.
  void ask(SlotId slot, double waited_s);
  void ask_call(core::SetId set, core::Round call, core::CollectiveKind kind, double waited_s);
  /// The deadline of a submission has passed whose batch has been handed out and is not complete.
  void overdue_running(core::SetId set, const std::string& name, double waited_s);
  void answer(Answer answer);
  /// Of the slot's last submission.
  [[nodiscard]] core::Round round_of(SlotId slot) const;
  /// Nothing comes from other nodes for a batch that has been handed out.
  void starved();
  /// This rank will submit nothing more.
  void leave();

  /// Executes one entry; appends what the caller has to do, in order.
  void on_log(const LogEntry& entry, std::vector<Action>& actions);

  /// What is to be published; the caller takes it and clears it.
  [[nodiscard]] Outbox& outbox() noexcept;
  [[nodiscard]] const ParticipantCounters& counters() const noexcept;
  [[nodiscard]] bool in_flight(SlotId slot) const;
  [[nodiscard]] const std::string& name_of(SlotId slot) const;
  /// What the slot's id means now: of a slot whose batch has just been handed out.
  [[nodiscard]] const std::shared_ptr<const core::Signature>& signature_of(SlotId slot) const;
  /// The other ranks of which the log has said that they have left, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& departed() const noexcept;
  /// Of these, those whose leaving is not the consequence of another's: who had left when the first submission failed
  /// because of that; all, when none has.
  [[nodiscard]] const std::vector<std::int32_t>& first_to_leave() const noexcept;
  [[nodiscard]] bool has_departed(std::int32_t rank) const noexcept;
  /// All ids in use lie below: how far a leader must look along a count column.
  [[nodiscard]] core::TensorId id_bound() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::control
