// SPDX-License-Identifier: Apache-2.0
//
// The messages of negotiation. There are two directions:
//
//   up    a rank -> its node's leader (board and message ring) -> parent leaders (TCP) -> the sequencer
//   down  the log: one sequence of entries, the same for every rank, written by the sequencer alone
//
// Submissions are counts, never bits. A submission is either *bare* (the count word of an id rises) or *whole* (a
// `Declared` with the signature). On the way up, leaders merge: a count goes up once all members below have reached it,
// a declaration once all members below have made theirs, bare or whole, for that round. What reaches the sequencer has
// therefore been submitted by every member, and the number of messages at the root does not grow with the ranks.
//
// Seven subjects have rules of their own, which stand beside their messages: "Waiting" (for which rank) above
// `Counted`, "Members" (how sets are made and dropped) above `Declared`, "Questions" (about long waits) above
// `Overdue`, "First causes" (of a rank's end) and "Leaving" above `RankLost`, "Sequences" (calls without a name) above
// `SequenceGrown`, and "Joining" (ranks that are out of data) above `Joined`.
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

/// What ranks wait for, ask about, and are told the end of: a round of a name, a call of a set's sequence, a set that
/// is to be made, or a set's join.
struct Request {
  core::SetId set = core::kGlobalSet;
  std::string name;                        ///< kSequence: a call. A join has none
  core::Round round = 0;                   ///< of the name; the number of the call, or of the set's join, from 1
  std::vector<std::int32_t> members = {};  ///< the ranks that make it, ascending ("Members"); empty: the set's members
  bool join = false;
  std::uint64_t serial = 0;  ///< which submission of the rank that asks it is ("Questions"); 0: it has no serial

  [[nodiscard]] bool is_call() const { return members.empty() && name == kSequence; }
};
/// Whether both are the same request, whoever asks.
inline bool are_same(const Request& a, const Request& b) {
  return a.set == b.set && a.round == b.round && a.join == b.join && a.members == b.members && a.name == b.name;
}

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

// Waiting. Counts, declarations and calls say which rank below was the last to submit (`last`). Entries of batches say
// for which rank the batch waited: the last that had submitted the request that came last.
//
//   order    is that in which leaders have heard the ranks. Ranks that are heard in one pass of a leader cannot be told
//            apart, but for the leader's own, which has submitted in that pass.
//   none     (-1) if ranks cannot be told apart; if a request was complete because a rank had joined; if a batch was
//            complete before there was space for it, because then it waited for other batches. A rank itself says none:
//            its leader knows who it is.

/// Bare: all members below have submitted `id` up to `word`. Inside a node this is the count column of the board.
struct Counted {
  core::TensorId id = core::kNoTensor;
  CountWord word;
  std::int32_t last = -1;  ///< "Waiting"
};

// Members. A request belongs to a set, and all members of the set make it. A request to make a set belongs to the world
// and names its members (`Declared::members`). Only these make it; no other rank is asked, waits, or learns of it.
// Later requests name the set by its number, so they do not carry the list.
//
//   making   A rank declares the request with the list and waits. Requests are matched by list and name. A rank has one
//            such request open at a time, so equal ones are matched in the order of its calls. When the last member has
//            made it, the log says `SetAdded`: a number and a row of reserved ids. If ranks gave the list in different
//            orders, the log says `Failed`. If a member never comes, the others' wait ends as any wait does, and the
//            error says which ranks wait for another list.
//   giving up  A rank can make a request so that its deadline ends the request and not the job (`Overdue::alone`). The
//            log then says `Failed` (expired), and each member takes this failure once: by the request that it has in
//            flight, else by its next one of this list and name, at once. The k-th call of each member therefore has
//            the same end, also if a member comes late. Such a failure ends a round; the next request of the list and
//            name is of the next round, and the first one after `SetAdded` of round 1 again. A declaration of a round
//            that has ended is void.
//   dropping A rank that is done with a set says so once, by a count (`kDropped`), when nothing that it has submitted
//            there is in flight and all its batches there are complete. It waits for no other rank. When the last
//            member has dropped the set, the log says `SetRemoved`. Nothing of the set is open anywhere then, so number
//            and row are free at once, in the order of the log. The words of the row are set back to zero.
//   death    The death of any rank is a fatal error of the world.
//   leaving  A rank that leaves drops its sets. A request that names it among its members is asked about, and fails if
//            that rank has not made it.
//   plans    A plan of the set that is open when the last member drops it is voided just before.

/// Whole: all members below have submitted `round` of this name; at least one with a signature of its own.
struct Declared {
  /// Ranks that agree. Without a signature: they submitted bare, under the generation in `Declared::generation`.
  struct Variant {
    std::optional<core::Signature> signature;
    std::vector<std::int32_t> ranks;
  };
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Round round = 0;
  /// The id and generation under which the submitter knows this name; kNoTensor if it knows none. A declaration with an
  /// evicted generation is void: its ranks send it again when they read of the eviction.
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  std::vector<Variant> variants;
  std::vector<std::int32_t> members = {};  ///< the ranks that make the request, ascending; empty: the set's members
  std::int32_t last = -1;                  ///< "Waiting", as in all that follow
};

/// `rank` is blocked (a wait, wait_for, an unfinished done(), on_done, wait_on) while this planned batch lacks some of
/// its own submissions: the batch must not wait for them any longer.
struct PartAwaited {
  std::int32_t rank = 0;
  std::uint32_t plan = 0;
  std::uint32_t batch = 0;
  std::vector<core::TensorId> lacking;  ///< the members of the batch that the rank has not submitted; at least one
  core::Round round = 0;                ///< of the first of `lacking`: the round that is missing
};

// Questions. Long waits are asked about: for a warning, at a deadline, because the program asks, or because a rank has
// left. All of them go the same way.
//
//   asking     A rank that waits says for what (`Overdue`), and the sequencer asks all ranks that make the request
//              (`Query`). Ranks that wait for the same request share a question.
//   answering  Every one of them answers by itself (`Answer`). Only the rank knows for which ranks its data plane
//              waits, and a stopped rank is found because it does not answer. For a rank that has left, but not for
//              the asker, the leader of its node answers, which has heard all that it submitted.
//   outcome    One entry for all: `Stalled` names those that have not submitted, and those that do not answer;
//              `Faulted` does, at a deadline, or `Failed` where that ends the request alone; `Failed` if one of them
//              has left. There is no entry if the wait is over.
//   over       A question can reach the ranks when the wait is over, and when the asker waits for the next request of
//              the same name already: rounds begin anew when an id has been evicted, or a set has been made. A rank
//              therefore counts its submissions, and gives the number when it asks (`Request::serial`). If the
//              submission that it has now is another one, it answers that it has not submitted the request, and the
//              question is over for it. Only the asker compares serials. If it has left and does not answer, it waits
//              for nothing any more.
//   the others All ranks read a question at one place of the log. If the asker's submission is in flight there, what
//              another member has in flight under the same name is the same request.

/// `rank` has waited for this request for `waited_s`. With `deadline` the wait must end now, by a fatal error, or
/// alone; without it a warning is due. `running`: the batch has been handed to the data plane; the round may be 0 then.
struct Overdue {
  std::int32_t rank = 0;
  Request request;
  double waited_s = 0;
  bool deadline = false;
  bool running = false;
  core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of a call without a name, for a warning
  bool asked = false;  ///< the program asks: it gets an answer each time, and there is no warning
  bool alone = false;  ///< the deadline ends the request, which names its members, and not the job ("Members")
};

/// The state of a rank's data plane.
enum class Doing : std::uint8_t {
  nothing,   ///< no batch is open
  waiting,   ///< open batches wait for other ranks
  standing,  ///< open batches wait for no other rank: this one must move them
};

/// A rank's answer to a `Query`. A rank that does not answer is stopped, or gets no CPU.
struct Answer {
  std::uint64_t query = 0;
  std::int32_t rank = 0;
  bool submitted =
      false;  ///< whether this rank has submitted the request in question; of a join: whether it has joined
  Doing doing = Doing::nothing;
  std::vector<std::int32_t> awaited;  ///< the ranks for which it waits, ascending; empty: the data plane cannot say
  /// A request that is not in the log yet, and for which a thread of this rank waits.
  std::optional<Request> wait;
};

// First causes. A rank's end is often the consequence of another rank's end: rank 1 leaves, rank 2's message from it
// fails, and rank 2's program ends because of that. Errors name the first rank of such a chain, here rank 1. (A rank
// that has died without leaving ends the job at once, and is named itself.)
//
//   saying     A rank whose operation has failed because another one has left says so at once (`Deserted`), before its
//              program learns of it. Links keep their order, so the sequencer knows it before it hears that the rank
//              has left or is gone, also if the process ends without a word.
//              A message that expires counts, too, if a rank of its group has left: it may have waited for that one, or
//              its peer has. It does not count with a deadline that is shorter than the usual one: such a receive only
//              asks whether there is a message.
//   passing on A rank that gives a message up, because of its end or because the other half of a `sendrecv` has failed,
//              tells the message's peer for which rank's leaving (data/p2p/frame.hpp). The message fails there as one
//              of that rank would.
//   going on   A rank of which a later operation succeeds takes that back (`by` is -1). What ends it after that is no
//              consequence.
//   following  The sequencer accepts it only if `by` has left in its log and `rank` has not. The cause of `rank` is
//              then the cause of `by`, or `by` itself. It is fixed when the rank leaves. A chain therefore goes
//              from later entries of the log to earlier ones, has no circle, and has one first rank; of ranks that
//              leave independently of each other, each is its own.
//   told       `RankDeparted` has the first cause, so that messages to and from the rank fail with it. The sentences of
//              `Faulted`, `Failed`, ... name it, and `Faulted::rank` is it.

/// An operation of `rank` has failed because `by` has left. -1: the rank has gone on since.
struct Deserted {
  std::int32_t rank = 0;
  std::int32_t by = -1;
};

// Leaving. A rank that has left submits nothing more, and goes on serving the others until the log ends: it runs the
// batches for which it is needed, and a leader passes on what its ranks say and read.
//
//   gone       It can stop before that, because it waits for the others no longer, or because its process ends. Its
//              `RankLost` says so: by itself, or else by the rank that sees its end. What needs it and is not in the
//              log can never run, and fails. The log says once more that the rank has left (`RankDeparted::gone`). A
//              rank that stops by itself waits until it has nothing in flight.
//   cut off    Messages of some ranks pass through a leader, and so does their log. Once it is gone, they count for the
//              others as gone, too, having left because of it: nobody waits for them. For themselves the log ends
//              behind the entry that says that the leader is gone, so they run what others wait for. A leader therefore
//              serves its node until it has read that entry. If it could not, the ranks of its node and the leaders
//              below close the log when they see its end.
//   rank 0     cuts off all others, so it closes the log for everybody.

/// A rank is gone: its process died, its link broke, or its code threw: a fatal error. If it has left before, the job
/// goes on ("Leaving").
struct RankLost {
  std::int32_t rank = 0;
  ErrorCode code = ErrorCode::rank_lost;
  std::string reason;
};

/// A rank has called shutdown() and will submit nothing more.
struct Departed {
  /// Calls that the rank has made in a set's sequence. Sets without a call are left out.
  struct Sequence {
    core::SetId set = core::kGlobalSet;
    core::Round calls = 0;   ///< the last
    core::Round passed = 0;  ///< the last that has avoided the log, or with which a join has ended
  };
  std::int32_t rank = 0;
  std::vector<Sequence> sequences = {};
};

// Sequences. A rank's calls without a name in a set, blocking and asynchronous ones, are its *sequence* there, in the
// order in which they were made. A call is identified by its number in the sequence, from 1. Such calls have no ids, no
// rounds and no plans.
//
//   shortcut A short blocking call may avoid the log (shortcut.hpp). Then all members avoid it, while nothing of the
//            sequence is in flight in the log. Its number is therefore missing on every link, between two messages.
//   up       `SequenceGrown` says which calls follow those of the message before: how many of which signature, one
//            after another. Each link has its own numbers for signatures, which the sender gives (sequence_link.hpp). A
//            thousand calls of one signature are therefore a few bytes, and no number needs an agreement.
//   merging  A relay compares its children's calls one by one, and passes on those that all of them have made. If
//            signatures differ at a number, it passes on all of them as one disputed call.
//   down     Calls run in the order of their numbers, so the log only says how many: `SequenceAppended`. A disputed
//            call fails on every member (`SequenceFailed`), and the next one goes on.
//   leaving  `Departed` says how many calls the rank has made in each set, and which of them have avoided the log: no
//            other message says so. Later calls can never be complete. A rank that has made one asks about it
//            (`Overdue` of zero seconds), and `SequenceEnded` says the last number that may run.
//   joining  `Joined` and `RankJoined` say how many calls the rank had given to the log. It contributes to these and to
//            no later ones; `SequenceAppended` has the signatures that it does not know. Its calls may reach the
//            sequencer after its `Joined`, and the end of the join waits for them. Then all members go on from one
//            number, the greatest that any of them has made (`JoinEnded`); the log alone does not know it, because the
//            last calls may have avoided it.
//   waits    are asked about under a name that no program can use (`kSequence`), with the call's number as the round.

/// All members below have made these calls of a set's sequence. They follow one another and the calls of the message
/// before.
struct SequenceGrown {
  /// `count` calls of one signature, one after another.
  struct Repeat {
    std::uint32_t number = 0;  ///< the link's number for the signature
    std::uint64_t count = 1;
    std::optional<core::Signature> signature = {};  ///< from here on the number means this one
    /// If not empty: one call on which ranks disagree, with the signatures. `number` is not used then.
    std::vector<Declared::Variant> variants = {};
  };
  core::SetId set = core::kGlobalSet;
  core::Round first = 1;  ///< the number of the first call
  std::vector<Repeat> repeats;
  std::int32_t last = -1;
};

/// For some time `rank` has received nothing from the nodes for which it waits, in a batch that all have submitted. See
/// InterNode::push.
struct Starved {
  std::int32_t rank = 0;
};

// Joining. A rank that is out of data joins a set (`Joined`). The other members go on, and in their operations it
// counts as having submitted everything, with the operation's neutral element. It is *absent* then.
//
//   beginning   A relay passes `Joined` on, and from then on waits for nothing more of that rank in the set except its
//               completed batches. What a relay sends before `Joined` includes the rank; what it sends after it does
//               not. Links keep their order, so every relay above and the sequencer can tell the two apart.
//   who contributes  `Joined` lists the submissions that the rank has in flight, whole, because relays do not wait for
//               those either. The sequencer removes those that the log has run or failed since the rank read it, and
//               lists the rest in the log (`RankJoined`). The rank contributes to these, and to nothing else until the
//               join ends. Every rank therefore knows from the log who contributes to a batch. Within one batch it is
//               the same ranks for all members. While a rank is absent there is no plan.
//   the absent rank  executes every batch. It learns names and signatures from `Assigned`. It counts rounds, also those
//               that fail, so that its counts agree when it returns. It answers questions as a rank that has submitted.
//               When an id is evicted, it forgets the id as the others do; what it has in flight under that name is
//               round 1 from then on, and is not sent again.
//   averages    are over the ranks that contribute, and over absent ranks that want it (`Joined::counts`).
//   refused     These fail (`Failed`), and the job goes on: a collective whose root is absent, a kind in which each
//               rank sends and receives, a product of scaled numbers, which has no neutral element, and a new process
//               set of a rank that has joined the world without having asked for that set before.
//   the end     When the last member has joined, what the lists have left runs, because no other rank will submit it.
//               Then the log says `JoinEnded`: the join returns on all members with the rank that joined last, and all
//               are present. Nothing of the set is in flight then, in relays neither. Steps are counted on from the
//               member that has ended most of them.
//   leaving     If a member leaves before the end, the join can never end, and fails (`JoinEnded` with an error).
//               Counts that were merged without the absent rank may still be on their way up, so nothing later in the
//               set can run; it fails as if the rank that left were missing.
//   deadline    A rank that has joined waits for those that have not. Its deadline counts from the set's last batch, so
//               a join may last as long as the others work. Then the rank asks (`Overdue::join`). Every member answers
//               whether it has joined, and the error names those that have not.

/// `rank` submits nothing more in the set until all members have joined.
struct Joined {
  /// A submission in flight, as far as the rank has read the log.
  struct Submission {
    std::string name;
    core::Round round = 0;
    core::TensorId id = core::kNoTensor;  ///< under which the rank knows the name
    core::Signature signature;
  };
  std::int32_t rank = 0;
  core::SetId set = core::kGlobalSet;
  std::uint64_t read = 0;               ///< how many entries of the log the rank has read
  std::uint64_t steps = 0;              ///< how many steps the rank has ended in the set
  std::vector<Submission> submissions;  ///< by name, ascending
  core::Round calls = 0;                ///< the last call of its sequence that the rank has made, by the log or by the
                                        ///< shortcut
  bool counts = false;                  ///< averages count this rank while it is absent
  core::Round sequence = 0;             ///< the last call that the rank has given to the log
};

using UpMessage = std::variant<Counted, Declared, PartAwaited, Overdue, RankLost, Departed, Starved, Answer, Joined,
                               SequenceGrown, Deserted>;

// ---------------------------------------------------------------- down: the log

/// From here on `id`, under `generation`, means this name with this signature. All members have submitted it.
struct Assigned {
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
  core::SetId set = core::kGlobalSet;
  std::string name;
  core::Signature signature;
};

/// `id` is free again. Submissions under it that are not in the log yet are sent again, whole, as round 1.
struct Evicted {
  core::TensorId id = core::kNoTensor;
  std::uint16_t generation = 0;
};

/// Execute these, in this order, as one batch.
struct BatchAppended {
  core::SetId set = core::kGlobalSet;
  std::vector<core::TensorId> members;
  std::int32_t last = -1;
};

/// The batches of a step, frozen; executes nothing by itself.
struct PlanDefined {
  std::uint32_t plan = 0;
  core::SetId set = core::kGlobalSet;
  std::vector<std::vector<core::TensorId>> batches;
};
/// Why a plan ends.
enum class PlanEnd : std::uint8_t {
  new_plan,    ///< the last steps differed from the plan; a new one follows
  waited_for,  ///< a rank waited for a part of a batch and lacked the rest
  signature,   ///< a tensor of the plan got another signature
  failed,      ///< ranks disagreed about a tensor of the plan
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
  std::int32_t last = -1;
};

/// The request fails on every member that has it in flight, with this error; the job goes on. If a member has left, or
/// a deadline has given it up, it may fail before all members have submitted it.
struct Failed {
  Request request;
  ErrorCode code = ErrorCode::mismatch;
  std::string message;
};

/// A question about a request ("Questions"). Round 0: all members have submitted it.
struct Query {
  std::uint64_t query = 0;
  Request request;
  std::int32_t asker = 0;  ///< the rank whose serial it has
};

/// Execute the next `count` calls of the set's sequence as one batch.
struct SequenceAppended {
  /// `count` calls of one signature.
  struct Repeat {
    std::uint64_t count = 1;
    core::Signature signature;
  };
  core::SetId set = core::kGlobalSet;
  std::uint64_t calls = 1;
  std::vector<Repeat> repeats = {};  ///< the calls' signatures, if some ranks are absent and have not made them; else
                                     ///< empty
  std::int32_t last = -1;
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

/// A request for which some ranks have waited longer than the stall warning time, or about which a program asks.
struct Stalled {
  Request request;
  double waited_s = 0;
  std::vector<std::int32_t> missing;  ///< the members that have not submitted it; of a join: that have not joined
  core::CollectiveKind kind = core::CollectiveKind::allreduce;  ///< of a call without a name
  bool asked = false;                                           ///< as in `Overdue`: no warning
  std::vector<std::int32_t> silent = {};                        ///< the members that do not answer
};

/// The answer to a request of kind add_process_set that its members agreed on: it completes with this entry, and no
/// batch follows for it.
struct SetAdded {
  core::SetId set = core::kGlobalSet;
  core::TensorId base = 0;            ///< the first id of its row,
  std::uint16_t generation = 0;       ///< the generation of these ids, which no earlier word has
  std::vector<std::int32_t> members;  ///< in the set's order
  std::string name;                   ///< of the request
};
/// All members have dropped the set.
struct SetRemoved {
  core::SetId set = core::kGlobalSet;
};

/// A rank has called shutdown() and submits nothing more. What it has submitted is earlier in the log or is still to be
/// appended. Any other request that needs the rank fails on every rank that reads this (see control/participant.hpp).
struct RankDeparted {
  std::int32_t rank = 0;
  std::int32_t because = -1;  ///< the first cause, which has left before; -1: the rank itself
  bool gone = false;          ///< it has stopped, or cannot be heard any more ("Leaving"); it may have left before
};

/// From here on this member of the set is absent.
struct RankJoined {
  core::SetId set = core::kGlobalSet;
  std::int32_t rank = 0;
  std::vector<std::string> submissions;  ///< the submissions to which it still contributes, by name, ascending
  bool counts = false;                   ///< as in `Joined`
  core::Round sequence = 0;              ///< it also contributes to the sequence up to this number
};
/// All members are present again: because all have joined, or because the join failed.
struct JoinEnded {
  core::SetId set = core::kGlobalSet;
  std::int32_t last = -1;          ///< the rank that joined last; -1: it failed
  std::uint64_t steps = 0;         ///< the number of steps that every member has ended from here on
  ErrorCode code = ErrorCode::ok;  ///< why it failed
  std::string message = {};
  core::Round calls = 0;  ///< the last call of the sequence that any member has made; if it failed: that can run
};

/// The first fatal error: every handle fails with it, now and later. Nothing follows it in the log.
struct Faulted {
  ErrorCode code = ErrorCode::rank_lost;
  std::int32_t rank = -1;  ///< the rank that caused it, if known
  std::string message;
};

/// A rank waits for data from another node. Every rank that has sent between nodes calls its transport, which may hold
/// data back.
struct Push {};

/// All ranks have left; links may be closed once the batches before it have run. Nothing follows it in the log.
struct Closed {};

using LogEntry = std::variant<Assigned, Evicted, BatchAppended, PlanDefined, PlanVoided, PlannedBatch, Failed, Query,
                              Stalled, SetAdded, SetRemoved, RankDeparted, Faulted, Closed, Push, RankJoined, JoinEnded,
                              SequenceAppended, SequenceFailed, SequenceEnded>;

}  // namespace kolo::control
