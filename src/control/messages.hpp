// SPDX-License-Identifier: Apache-2.0
//
// Everything that negotiation says. Two directions, and nothing else:
//
//   up    a rank -> its node's leader (board and message ring) -> parent leaders (TCP) -> the sequencer
//   down  the log: one sequence of entries, the same for every rank, made by the sequencer alone
//
// Submissions are counts, never bits. A submission is either *bare* - the count word of an id rises - or *whole* - a
// `Declared` with the signature. On the way up, leaders merge: a count goes up once all members below have reached
// it, a declaration once all members below have made theirs (bare or whole) for that round. So what the sequencer
// hears has been said by every member, and the messages at the root do not grow with the ranks.
//
// Members. A request is of a set, and all members of the set make it. A request to make a set is of the world, names
// its members, and these alone make it: nobody else is asked, waits, or need know. From then on the list is known by
// the set's number, so that no steady request carries it.
//
//   making   A rank declares the request with the list (`Declared::members`) and waits. Who makes the request is
//            matched by the list and the name; a rank has one such request open at a time, so the order of its calls
//            tells which is meant. When the last member has made it the log says `SetAdded`: a number and a row of
//            reserved ids. Ranks that gave the list in different orders disagree, which is `Failed`. A member that
//            never comes: the others' wait ends as any wait does, and whoever gave another list is said to wait for
//            that one.
//   dropping A rank that is done with a set says so once, by a count (`kDropped`), when nothing that it has submitted
//            there is in flight and all its batches there are complete. It waits for nobody. When the last member has
//            dropped the set the log says `SetRemoved`; then nothing of the set is open anywhere, so number and row are
//            free at once, in the order of the log. The words of the row are set back to zero.
//   death    of any rank is the world's fault, at whatever point.
//   leaving  A rank that leaves drops its sets. What needs it fails as always: a request that names it among its
//            members is asked about, and fails if that rank has not made it.
//   plans    A plan of the set that is open when the last member drops it is voided just before.
//
// Joining. A rank that is out of data joins (`Joined`), in any set: the others go on, and for what they do in the set
// it counts as having submitted everything, with the operation's neutral element. It is *absent* then.
//
//   from when   A relay passes `Joined` on, and from then on waits for nothing more of that rank in the set but its
//               completed batches. What a relay sends before `Joined` was said with the rank, what it sends after it,
//               without. Links keep their order, so the sequencer knows which is which, and it is the same for all
//               relays on the way; the others never waited for that rank by itself.
//   who contributes  `Joined` lists what the rank has in flight, whole, because relays do not wait for that either.
//               The sequencer strikes out what the log has run or failed since the rank read it, and the log says what
//               is left (`RankJoined`). A rank contributes to all that it submitted before it joined: to what is
//               listed, and to nothing else until the join ends. So everybody knows from the log alone who contributes
//               to a batch; in one batch it is the same ranks for all members, and while somebody is absent there is no
//               plan.
//   the absent  executes every batch. It learns names and signatures from `Assigned`, and counts rounds along, also
//               those that fail, so that they agree when it returns. It answers questions as one who has submitted. An
//               id that is evicted it forgets as the others do; what it has in flight is listed as round 1 from then
//               on, and nobody sends it again.
//   averages    are over those that contribute, and over the absent that want it (`Joined::counts`).
//   refused     What names an absent rank as its root, kinds in which each rank sends and receives, and products of
//               scaled numbers, which have no neutral element, fail (`Failed`); and so does a process set that names a
//               rank which has joined the world, and has not asked for that set before. The job goes on.
//   the end     When the last member has joined, what is listed runs, for nobody else can be waited for. Then the log
//               says `JoinEnded`: the join returns on all members with the rank that joined last, and all are present.
//               Nothing of the set is in flight then, in relays neither. Steps are counted on from the member that has
//               ended most of them.
//   leaving     of a member, joined or not, before the end: the join can never end, and fails (`JoinEnded` with an
//               error). What had been said without the absent may still be on its way up, so nothing later in the set
//               can run; it fails as if the rank that left were missing.
//   deadline    A rank that has joined waits for those that have not. It counts from the set's last batch, so that a
//               join may last as long as the others work. Then it asks (`Overdue::join`); every member answers whether
//               it has joined, and the error names those that have not.
//
// Sequences. The calls of a rank in a set that have no name, blocking and asynchronous ones, are its *sequence* there,
// in the order in which they were made; a call's number in it, from 1, is its identity. There are no ids, no rounds and
// no plans:
//
//   express  A short blocking call may avoid the log (express.hpp). Then it does so on all members, and nothing of the
//            sequence is in flight in the log. So a number that is missing here is missing on every link, and between
//            two messages.
//   up       `SequenceGrown` says what follows what was said last: how many calls of which signature, one after
//            another. Each link has numbers of its own for the signatures, which the sender gives (sequence.hpp). So a
//            thousand calls of one signature are a few bytes, and nothing waits for an agreement about a number.
//   merging  A relay compares what its children say call by call, and passes on what all of them have made. Where their
//            signatures differ at one number, it passes on all of them as one call that is disputed. Nobody is asked:
//            the ranks' order itself shows the mismatch, as soon as the last of them has made the call.
//   down     Calls run in the order of their numbers, so the log says only how many: `SequenceAppended`. One that is
//            disputed fails on every member (`SequenceFailed`), and the next one goes on.
//   leaving  `Departed` says how far the rank has come in each set. Later calls can never be complete. Whoever has made
//            one asks (`Overdue` of zero seconds), and `SequenceEnded` says the last number that may run.
//   joining  `Joined` and `RankJoined` say how far the rank has come in the log. It contributes to what it has made,
//            and to nothing later; `SequenceAppended` brings the signatures that it does not know. What it had made
//            reaches the sequencer after its `Joined`, perhaps: the end waits for that. Then all members go on from one
//            number, the greatest that any of them has made (`JoinEnded`). The log alone does not know it: the last
//            calls may have avoided it.
//   waits    are asked about under a name that no program can use (`kSequence`), and the call's number as its round.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <kolo/error.hpp>

#include "core/signature.hpp"

namespace kolo::control {

/// Stands for a set's sequence where a name is asked about.
inline constexpr const char* kSequence = "kolo.sequence";

/// A submission count together with the generation of the signature that it was made under: 16 and 48 bits of one
/// word, so that one store publishes both. Zero means: nothing submitted yet.
struct CountWord {
  std::uint16_t generation = 0;
  std::uint64_t count = 0;

  static constexpr int kCountBits = 48;
  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return (std::uint64_t{generation} << kCountBits) | (count & ((std::uint64_t{1} << kCountBits) - 1));
  }
  static constexpr CountWord unpack(std::uint64_t word) noexcept {
    return {static_cast<std::uint16_t>(word >> kCountBits), word & ((std::uint64_t{1} << kCountBits) - 1)};
  }
  friend bool operator==(const CountWord& a, const CountWord& b) noexcept { return a.pack() == b.pack(); }
};

// ---------------------------------------------------------------- up

/// Bare: all members below have submitted `id` up to `word`. Inside a node this is the count column of the board.
struct Counted {
  core::TensorId id = core::kNoTensor;
  CountWord word;
};

/// Whole: all members below have submitted `round` of this name; at least one with a signature of its own.
struct Declared {
  /// Those who agree. No signature: they submitted bare, under the generation in `Declared::generation`.
  struct Variant {
    std::optional<core::Signature> signature;
    std::vector<std::int32_t> ranks;
  };
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Round round = 0;
  /// The id and generation that the submitter knows this name by; kNoTensor when it knows none. A declaration that
  /// refers to an evicted generation is void: its ranks send it again when they read of the eviction.
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  std::vector<Variant> variants;
  std::vector<std::int32_t> members = {};  ///< who makes it, ascending; empty: the set's members
};

/// `rank` is blocked (a wait, wait_for, an unfinished done(), on_done, wait_on) while this planned batch lacks some of
/// its own submissions: the batch must not wait for them any longer.
struct PartAwaited {
  std::int32_t rank = 0;
  std::uint32_t plan = 0;
  std::uint32_t batch = 0;
  std::vector<core::TensorId> lacking;  ///< the members of the batch that the rank has not submitted; at least one
  core::Round round = 0;                ///< of the first of them: the round it lacks
};

/// `rank` has waited for this submission for `waited_s`. With `deadline` the wait must end now, by a fatal error; else
/// a warning is due. `running`: its batch has been handed to the data plane; `round` may be 0 then.
struct Overdue {
  std::int32_t rank = 0;
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Round round = 0;
  double waited_s = 0;
  bool deadline = false;
  bool running = false;
  std::vector<std::int32_t> members = {};  ///< as in `Declared`, here and below
  /// It waits for the others to join: `name` is empty, and `round` is the number of the set's join, from 1.
  bool join = false;
  core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of a call without a name, for a warning
  bool asked = false;  ///< the program asks: it is answered each time, and nobody is warned
};

/// A node's answer to a `Query` for a warning: those of its own ranks that have not submitted.
struct Missing {
  std::uint64_t query = 0;
  std::vector<std::int32_t> ranks;
};

/// What the data plane of a rank does.
enum class Doing : std::uint8_t {
  nothing,   ///< no batch is open
  waiting,   ///< open batches wait for other ranks
  standing,  ///< open batches wait for no other rank: this one has to move them on
};

/// A rank's answer to a `Query` for a deadline. A rank that does not answer is stopped, or is kept from running.
struct Answer {
  /// A submission of this rank's own that some thread waits for and that is not in the log yet.
  struct Wait {
    core::SetId set = core::kGlobalSet;
    std::string name;
    core::Round round = 0;
    std::vector<std::int32_t> members = {};
  };
  std::uint64_t query = 0;
  std::int32_t rank = 0;
  bool submitted = false;  ///< what was asked about
  Doing doing = Doing::nothing;
  std::vector<std::int32_t> awaited;  ///< whom it waits for, ascending; empty: the data plane cannot say
  std::optional<Wait> wait;
};

/// A rank is gone: its process died, its link broke, or its code threw. Always a fatal error.
struct RankLost {
  std::int32_t rank = 0;
  ErrorCode code = ErrorCode::rank_lost;
  std::string reason;
};

/// A rank has called shutdown() and will submit nothing more.
struct Departed {
  /// The last call of its sequence in a set that the rank has made; where it has made none, the set is left out.
  struct Sequence {
    core::SetId set = core::kGlobalSet;
    core::Round calls = 0;
  };
  std::int32_t rank = 0;
  std::vector<Sequence> sequences = {};
};

/// All members below have made these calls of a set's sequence, which follow one another, and come after those of the
/// message before.
struct SequenceGrown {
  /// So many calls of one signature, one after another.
  struct Repeat {
    std::uint32_t number = 0;  ///< the link's for the signature
    std::uint64_t count = 1;
    std::optional<core::Signature> signature = {};  ///< from here on the number means this one
    /// Instead: one call on which ranks disagree; each has a signature. `number` counts for nothing.
    std::vector<Declared::Variant> variants = {};
  };
  core::SetId set = core::kGlobalSet;
  core::Round first = 1;  ///< the number of the first of them
  std::vector<Repeat> repeats;
};

/// Nothing has come to `rank` for some time from the nodes that it waits for, in a batch that all have submitted. See
/// InterNode::push.
struct Starved {
  std::int32_t rank = 0;
};

/// `rank` submits nothing more in the set until all members have joined.
struct Joined {
  /// In flight as far as the rank has read the log.
  struct Submission {
    std::string name;
    core::Round round = 0;
    core::TensorId id = core::kNoTensor;  ///< that the rank knows the name by
    core::Signature signature;
  };
  std::int32_t rank = 0;
  core::SetId set = core::kGlobalSet;
  std::uint64_t read = 0;               ///< so many entries of the log
  std::uint64_t steps = 0;              ///< that the rank has ended in the set
  std::vector<Submission> submissions;  ///< by name, ascending
  core::Round calls = 0;                ///< the last of its sequence that the rank has made, in the log or past it
  bool counts = false;                  ///< averages are over this rank, too, while it is absent
  core::Round sequence = 0;             ///< the last that the rank has given to the log
};

using UpMessage = std::variant<Counted, Declared, PartAwaited, Overdue, Missing, RankLost, Departed, Starved, Answer,
                               Joined, SequenceGrown>;

// ---------------------------------------------------------------- down: the log

/// From here on `id`, under `generation`, means this name with this signature. All members have submitted it.
struct Assigned {
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Signature signature;
};

/// `id` is free again. What was submitted under it and not yet appended is sent again, whole, as round 1.
struct Evicted {
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
};

/// Execute these, in this order, as one batch.
struct BatchAppended {
  core::SetId set = core::kGlobalSet;
  std::vector<core::TensorId> members;
};

/// The batches of a step, frozen; executes nothing by itself.
struct PlanDefined {
  std::uint32_t plan = 0;
  core::SetId set = core::kGlobalSet;
  std::vector<std::vector<core::TensorId>> batches;
};
/// Why a plan ends.
enum class PlanEnd : std::uint8_t {
  new_plan,    ///< the last steps differed from it; another one follows
  waited_for,  ///< a rank waited for a part of a batch and lacked the rest
  signature,   ///< a tensor of it got another signature
  failed,      ///< ranks disagreed about a tensor of it
  evicted,     ///< ids ran out
  departed,    ///< a rank left, or all have dropped the set
  joined,      ///< a rank joined
};
/// The plan will not be used again.
struct PlanVoided {
  std::uint32_t plan = 0;
  PlanEnd why = PlanEnd::new_plan;
};
/// Execute batch `number` of a plan: the short entry of a steady step.
struct PlannedBatch {
  std::uint32_t plan = 0;
  std::uint32_t number = 0;
};

/// Round `round` of this name fails on every member that has it in flight, with this error; the job goes on. Not all
/// members need have submitted it when one of them has left and never will.
struct Failed {
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Round round = 0;
  ErrorCode code = ErrorCode::mismatch;
  std::string message;
  std::vector<std::int32_t> members = {};
};

/// For a warning: leaders answer with `Missing`, ranks do nothing. For a deadline: every member of the set answers by
/// itself (`Answer`), because only a rank knows whom its data plane waits for, and because a rank that is stopped is
/// found by its silence. Round 0: everybody has submitted it.
struct Query {
  std::uint64_t query = 0;
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Round round = 0;
  bool deadline = false;
  std::vector<std::int32_t> members = {};
  bool join = false;  ///< as in `Overdue`: who has joined? For a deadline alone
};

/// Execute so many calls of the set's sequence, the next ones, as one batch.
struct SequenceAppended {
  /// So many of one signature.
  struct Repeat {
    std::uint64_t count = 1;
    core::Signature signature;
  };
  core::SetId set = core::kGlobalSet;
  std::uint64_t calls = 1;
  std::vector<Repeat> repeats = {};  ///< what they are, for ranks that are absent and have not made them; else empty
};
/// The next call of the set's sequence fails on every member; the job goes on.
struct SequenceFailed {
  core::SetId set = core::kGlobalSet;
  core::Round call = 0;  ///< its number
  ErrorCode code = ErrorCode::mismatch;
  std::string message;
};
/// Calls of the set's sequence beyond this number fail, now and later: a rank has left.
struct SequenceEnded {
  core::SetId set = core::kGlobalSet;
  core::Round last = 0;
  ErrorCode code = ErrorCode::rank_lost;
  std::string message;
};

/// A tensor that some have waited for longer than the stall warning time, or about which a program asks, and who has
/// not submitted it.
struct Stalled {
  core::SetId set = core::kGlobalSet;
  std::string name;
  double waited_s = 0;
  std::vector<std::int32_t> missing;
  std::vector<std::int32_t> members = {};
  bool join = false;  ///< as in `Overdue`: who has not joined
  core::Round round = 0;
  core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of a call without a name
  bool asked = false;                                           ///< as in `Overdue`: no warning
};

/// The answer to a request of kind add_process_set that its members agreed on: it completes with this entry, and no
/// batch follows for it.
struct SetAdded {
  core::SetId set = core::kGlobalSet;
  core::TensorId base = 0;            ///< of its row,
  std::uint16_t generation = 0;       ///< whose ids have this one, which no word of an earlier use of them has
  std::vector<std::int32_t> members;  ///< in the set's order
  std::string name;                   ///< of the request
};
/// All members have dropped the set.
struct SetRemoved {
  core::SetId set = core::kGlobalSet;
};

/// A rank has called shutdown() and submits nothing more. What it submitted stands earlier in the log or is still to be
/// appended; whatever else waits for it fails on every rank that reads this (see control/participant.hpp).
struct RankDeparted {
  std::int32_t rank = 0;
};

/// From here on this member of the set is absent.
struct RankJoined {
  core::SetId set = core::kGlobalSet;
  std::int32_t rank = 0;
  std::vector<std::string> submissions;  ///< what it contributes to yet, by name, ascending
  bool counts = false;                   ///< as in `Joined`
  core::Round sequence = 0;              ///< and to the sequence up to this number
};
/// All members are present again: because all have joined, or because the join failed.
struct JoinEnded {
  core::SetId set = core::kGlobalSet;
  std::int32_t last = -1;          ///< the rank that joined last; -1: it failed
  std::uint64_t steps = 0;         ///< ended by every member from here on
  ErrorCode code = ErrorCode::ok;  ///< why it failed
  std::string message = {};
  core::Round calls = 0;  ///< the last of its sequence that any of them has made
};

/// The first fatal error: every handle fails with it, now and later. Nothing follows it in the log.
struct Faulted {
  ErrorCode code = ErrorCode::rank_lost;
  std::int32_t rank = -1;  ///< whose, where that is known
  std::string message;
};

/// Whoever has sent between nodes pushes what the transport may still hold back: somebody waits for it.
struct Push {};

/// All ranks have left; links may be closed once the batches before it have run. Nothing follows it in the log.
struct Closed {};

using LogEntry = std::variant<Assigned, Evicted, BatchAppended, PlanDefined, PlanVoided, PlannedBatch, Failed, Query,
                              Stalled, SetAdded, SetRemoved, RankDeparted, Faulted, Closed, Push, RankJoined, JoinEnded,
                              SequenceAppended, SequenceFailed, SequenceEnded>;

}  // namespace kolo::control
