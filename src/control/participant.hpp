// SPDX-License-Identifier: Apache-2.0
//
// A rank's part in negotiation, as a pure state machine. Submissions go in, and messages to publish come out; log
// entries go in, and actions come out. It has no clock, no thread and no shared memory.
//
// A rank keeps one record for each name in a set, under a number of its own (`NameId`). A name is in flight from
// `submit` until the action that runs or fails it has been handed out; the caller never submits it twice at once (the
// engine refuses that at the call). A join, and a request for a set, have such a record as long as they are under way.
//
// Publishing: if a name has an id, and its signature is the one that the id means in its current generation, it is
// submitted by a count (`Outbox::counts`); otherwise by a whole `Declared` (`Outbox::messages`).
//
// Only its members ask for a set other than the world's (`ask_for_set`; messages.hpp). The answer is not `RunBatch` but
// `SetMade` or `FailName`. A rank that does not need a set any more drops it.
//
// Calls without a name (`call`) have no records: they are numbered, and run or fail in the order of their numbers
// (`RunCalls`, `FailCall`), except that a rank's last calls fail together when another rank has left (`FailLastCalls`).
// Calls that avoid the log (shortcut.hpp) do not pass through here, and their numbers are missing.
//
// A rank that is out of data joins (`join`; messages.hpp). Until all have joined it submits nothing in that set, and
// executes the others' batches: a `RunBatch` names the ranks that contribute nothing (`absent`). When this rank is one
// of them, its names in the batch are not in flight, and may have been opened by the log (`signature_of`). `JoinDone`
// ends that.
//
// A rank that has left will never submit again. Once the log has said so, this rank asks at once (an `Overdue` of zero
// seconds) about what it has in flight, or submits later, in a set with that rank. The submission fails by `FailName`
// (rank_lost) if the rank that left has not made it.
//
// An invalid entry is refused by an Error (ranges.hpp).
//
// Its parts are in src/control/participant/: the table of names (`names`), publishing (`publisher`), plans
// (`planned_parts`), calls without a name (`sequences`), joining (`joining`), and ranks that have left
// (`departed_ranks`).
#pragma once

#include <cstdint>
#include <map>
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

using NameId = std::uint32_t;

/// Messages and counts to publish, in this order. Messages and counts may overtake each other on their way to the
/// leader; `departed` must not overtake anything, because the log ends when all ranks have left.
struct Outbox {
  std::vector<UpMessage> messages;
  std::vector<std::pair<core::TensorId, CountWord>> counts;
  /// Whether one of the counts is of a set other than the world. The root may be no member of it, and must get it at
  /// once.
  bool counts_for_sets = false;
  std::optional<Departed> departed;
  [[nodiscard]] bool empty() const noexcept { return messages.empty() && counts.empty() && !departed; }
};

/// Execute these names' submissions as one batch, in this order. The batch completes when the caller says `completed`.
struct RunBatch {
  core::SetId set = core::kGlobalSet;
  std::vector<NameId> members;
  /// For a planned batch (plan + 1, number); plan_key 0 for any other. The same key always means the same members.
  std::uint32_t plan_key = 0;
  std::uint32_t number = 0;
  std::int32_t last = -1;  ///< the rank for which it waited, as the log has it
  /// The set's members that contribute nothing, ascending: the operation's neutral element is their input.
  std::vector<std::int32_t> absent = {};
  std::size_t uncounted = 0;  ///< how many of `absent` averages do not count
};
/// Execute the next calls of the set's sequence as one batch. It completes as a `RunBatch` does.
struct RunCalls {
  core::SetId set = core::kGlobalSet;
  std::uint64_t calls = 0;
  std::vector<std::int32_t> absent = {};  ///< as in `RunBatch`; if this rank is one of them, it has not made the calls,
  std::vector<SequenceAppended::Repeat> repeats = {};  ///< and their signatures are these
  std::size_t uncounted = 0;                           ///< as above
  std::int32_t last = -1;
};
/// The next call of the set's sequence fails; the job goes on.
struct FailCall {
  core::SetId set = core::kGlobalSet;
  Status status;
};
/// Calls of the set's sequence that this rank has in flight fail if their numbers are greater than `last`.
struct FailLastCalls {
  core::SetId set = core::kGlobalSet;
  core::Round last = 0;
  Status status;
};
/// This name's submission fails; the job goes on.
struct FailName {
  NameId name = 0;
  Status status;
};
/// The name was evicted while idle and forgotten: its number may be given to another name by a later `open`.
struct ForgetName {
  NameId name = 0;
};
/// The plan's layouts may be dropped (plan_key as above).
struct DropPlan {
  std::uint32_t plan_key = 0;
};
/// A stall that the log reported: for a warning, or because a program asks.
struct ReportStall {
  Stalled stall;
};
/// The set that this rank has asked for was made.
struct SetMade {
  core::SetId set = core::kGlobalSet;
  std::vector<std::int32_t> members;  ///< in the set's order
  NameId name = 0;                    ///< the request, now complete
};
/// A join of this rank's has ended, and it may submit again.
struct JoinDone {
  core::SetId set = core::kGlobalSet;
  std::int32_t last = -1;  ///< the rank that joined last; -1: the join failed
  NameId name = 0;
  core::Round calls = 0;  ///< this rank's next call without a name has a higher number
  Status status = {};     ///< why it failed
};
/// All members have dropped the set.
struct SetGone {
  core::SetId set = core::kGlobalSet;
};
/// The first fatal error: everything in flight fails with `status`, and so does everything later.
struct WorldFault {
  Status status;
  std::int32_t rank = -1;
};
/// All ranks have left. Batches handed out before still run; other submissions in flight will never run.
struct WorldClosed {};

/// A rank waits for data that another node has sent (transport/inter_node.hpp): call InterNode::push.
struct PushTransport {};

/// A rank's deadline has passed: add the state of the data plane to this answer, and give it to `Participant::answer`.
struct AnswerQuery {
  Answer answer;
};

using Action = std::variant<RunBatch, FailName, ForgetName, DropPlan, ReportStall, SetMade, SetGone, WorldFault,
                            WorldClosed, PushTransport, AnswerQuery, JoinDone, RunCalls, FailCall, FailLastCalls>;

struct ParticipantCounters {
  std::uint64_t bare = 0;             ///< submissions published as a count
  std::uint64_t declared = 0;         ///< submissions published whole
  std::uint64_t called = 0;           ///< calls of sequences
  std::uint64_t batches = 0;          ///< executed
  std::uint64_t planned_batches = 0;  ///< of `batches`: by a plan's short entry
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

  /// The number of a name, made when it is new. The set must exist.
  NameId open(core::SetId set, const std::string& name);
  /// Submits a name that is not in flight. The same pointer as last time is the fast path: nothing is compared.
  void submit(NameId name, const std::shared_ptr<const core::Signature>& signature);
  /// Makes a call of the set's sequence, or several of one signature; the number of the first. The same pointer as last
  /// time is the fast path. Numbers grow. Missing numbers are calls that have avoided the log while nothing of the
  /// sequence was in flight.
  void call(core::SetId set, const std::shared_ptr<const core::Signature>& signature, core::Round first,
            std::uint64_t count = 1);
  /// All calls of the set's sequence up to this one are over on this rank, by the log or by the shortcut. Call it
  /// before `leave`.
  void pass(core::SetId set, core::Round last);
  /// A call of the set's sequence, in flight, has waited for `waited_s` seconds; `running`: its batch has been handed
  /// out.
  void overdue_call(core::SetId set, core::Round call, core::CollectiveKind kind, double waited_s, bool deadline,
                    bool running);
  /// Asks for a set of these ranks, in this order; this rank is one of them. No request of the same ranks and name may
  /// be in flight. Its number ends with the request. `fails_alone`: its deadline ends only the request.
  NameId ask_for_set(const std::vector<std::int32_t>& ranks, const std::string& name, bool fails_alone = false);
  /// Before `ask_for_set`: how this rank's next request of these ranks and name has failed already, because the others
  /// have given it up. It is made thereby.
  [[nodiscard]] std::optional<Status> take_failure(std::vector<std::int32_t> ranks, const std::string& name);
  /// This rank submits nothing more in the set until all members have joined. Requests in flight there go on. The
  /// number ends with the join. `calls`: the number of its last call without a name, if that has avoided the log.
  /// `counts`: averages still count this rank.
  NameId join(core::SetId set, core::Round calls = 0, bool counts = false);
  /// This rank submits nothing more in the set. Once. Requests in flight there go on, and the set lasts until they end.
  void drop(core::SetId set);
  /// One more batch of the set is complete here. (A set is not gone while it has open batches.)
  void completed(core::SetId set);
  void end_step(core::SetId set);
  /// Whether a thread of this rank is blocked on an unfinished handle, or has asked about one. While it is, each
  /// planned batch that this rank has submitted in part is reported by `PartAwaited`, once in each such state. This is
  /// evaluated when the outbox is taken: take it after a group of submissions, because between them a batch may seem
  /// partial that is not.
  void set_awaiting(bool awaiting);
  /// A name's submission in flight has waited for `waited_s` seconds (a join: since the set's last batch).
  void overdue(NameId name, double waited_s, bool deadline);
  /// The program asks which ranks have not made this submission; `ReportStall` names them, if there are any.
  void ask(NameId name, double waited_s);
  void ask_call(core::SetId set, core::Round call, core::CollectiveKind kind, double waited_s);
  /// The deadline of a submission has passed whose batch has been handed out and is not complete.
  void overdue_running(core::SetId set, const std::string& name, double waited_s);
  void answer(Answer answer);
  /// The round of the name's last submission.
  [[nodiscard]] core::Round round_of(NameId name) const;
  /// This rank receives nothing from other nodes for a batch that has been handed out.
  void starved();
  /// This rank will submit nothing more.
  void leave();

  /// Executes one entry; appends what the caller has to do, in order.
  void on_log(const LogEntry& entry, std::vector<Action>& actions);

  /// Messages and counts to publish; the caller takes them and clears the outbox.
  [[nodiscard]] Outbox& outbox();
  [[nodiscard]] const ParticipantCounters& counters() const noexcept;
  [[nodiscard]] bool in_flight(NameId name) const;
  [[nodiscard]] const std::string& name_of(NameId name) const;
  /// The signature that the name's id means now, for a name whose batch has just been handed out.
  [[nodiscard]] const std::shared_ptr<const core::Signature>& signature_of(NameId name) const;
  /// The other ranks that have left, as far as this rank has read the log, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& departed() const noexcept;
  /// The ranks of `departed` that an error names: those that had left when the first submission failed because of it.
  /// Later ones probably left because of these. If no submission has failed: all of `departed`. Those of which the log
  /// says that they left because of another one are not among them.
  [[nodiscard]] std::vector<std::int32_t> first_to_leave() const;
  /// Of these ranks, of all where none are given, the first that has left; -1: none has.
  [[nodiscard]] std::int32_t earliest_to_leave(const std::vector<std::int32_t>& ranks) const;
  /// The first causes (control/messages.hpp) of those of `departed` that left because of another rank's end.
  [[nodiscard]] const std::map<std::int32_t, std::int32_t>& causes_of_departures() const noexcept;
  [[nodiscard]] bool has_departed(std::int32_t rank) const noexcept;
  /// All ids in use are below this: a leader need not look further along a count column.
  [[nodiscard]] core::TensorId id_bound() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::control
