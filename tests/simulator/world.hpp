// SPDX-License-Identifier: Apache-2.0
//
// A world of ranks that negotiate, simulated: the production Participant, Relay, Sequencer and codec, and everything
// between them made up. Time is a number; every delay is drawn from a seeded generator; one thread.
//
// What is modelled, because the protocol depends on it:
//   board     a rank's counts and messages reach its leader when that looks: all the counts, and of the messages as
//             many as it sees, in either order; so counts and messages overtake each other. Only a departure
//             (`Departed`) overtakes nothing. Ranks read the node's log each at its own pace.
//   links     first in, first out; different links reorder freely. The sequencer's entries reach even the root's relay
//             late.
//   programs  each rank runs a list of operations (submit, wait, ...), with random pauses; a blocked rank is
//             interested.
//   unnamed   calls are one sequence, whether a rank waits for them (`call`) or not (`launch`). Those that it waits for
//             avoid the log where control::Shortcut, over a memory that the ranks of all nodes share here, says so.
//             Sets have memory that others had before. Between the verdict and the look at the others' inputs time
//             passes.
//   batches   complete on a rank some time after all members of the set have executed them.
//   death     a rank stops; its node's leader says so some time later, or its node's parent when it was the leader
//             itself. Or nobody notices: its process was stopped. A rank whose operation fails because another one has
//             left says so.
//   going     a rank that has left stops, and says so. If it is a leader, the log ends for the ranks of its node and
//             those below, once it has said so, too; nothing comes from there any more.
//
// The checker looks at every event, the first violation stops the world:
//   - what a rank or relay reads is the sequencer's log, entry by entry;
//   - an entry that runs or fails something does so for submissions that every member has made and that no earlier
//     entry has consumed; a batch runs only what agrees, a mismatch fails only what does not;
//   - a rank runs and fails exactly what the entry says, for the submission that it says (the how-manieth of the name);
//   - a set is made when its members, and no others, have asked for it in one order; a request for one that a deadline
//     gives up fails on each member, on a late one at once; a set is removed when all of them
//     have dropped it, with nothing of it in flight or running anywhere, and before the end of the log if they all said
//     so;
//   - a rank that has joined is passed over from then on: what it submitted before is what the log lists; a batch runs,
//     and a name fails, when all who are present have submitted it; contributors are those who really have, and every
//     rank is told of the same ones; the join ends when all have joined and nothing of theirs is left, with one last
//     rank on all of them, or fails because a member has left;
//   - calls without a name run and fail in the order of their numbers, for calls of these numbers that every member has
//     made, or that a rank which has joined had not; none runs that a rank which has left has not made;
//   - a call without a name avoids the log on all members or on none, with one signature, and nothing of the sequence
//     is in the log then; every member finds the inputs of all members to this call;
//   - the rank for which a batch has waited, if it says one, is a member that contributes to it;
//   - of what waits in a set's queue nothing is more urgent than what the sequencer takes (`Readiness`);
//   - nothing follows the end of the log;
//   - and when nothing happens any more: every program has come to its end, and whatever all members had submitted
//     has been consumed and has completed everywhere.
//
// Sabotage hooks sit between the machines and change what passes: with them tests prove that the checker sees.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/columns.hpp"
#include "control/codec.hpp"
#include "control/participant.hpp"
#include "control/relay.hpp"
#include "control/sentences.hpp"
#include "control/sequencer.hpp"
#include "control/shortcut.hpp"
#include "core/topology.hpp"
#include "tests/simulator/readiness.hpp"

namespace kolo::simulator {

using control::NameId;
using core::SetId;
using core::TensorId;
using Tick = std::uint64_t;

/// One operation of a rank's program. Sets are called by the numbers that the program gives them; 0 is the world's.
/// What would be done with a set that could not be made is passed over. Submitting a name that is in flight waits for
/// it first.
struct Op {
  enum class Kind {
    submit,
    call,
    launch,
    wait,
    wait_launched,
    wait_all,
    poll,
    end_step,
    make_set,
    drop_set,
    join,
    pause,
    leave,
    go,
    die,
    stop
  };
  Kind kind = Kind::pause;
  int set = 0;
  std::string name;
  int signature = 0;                ///< number of one of the world's signatures
  std::vector<std::int32_t> ranks;  ///< for make_set
  Tick ticks = 0;                   ///< for pause
  bool alone = false;               ///< for make_set: its deadline ends only that
};
using Program = std::vector<Op>;

inline Op submit(std::string name, int signature = 0, int set = 0) {
  return {Op::Kind::submit, set, std::move(name), signature, {}, 0};
}
/// A call without a name, waited for.
inline Op call(int signature = 0, int set = 0) { return {Op::Kind::call, set, {}, signature, {}, 0}; }
inline Op wait(std::string name, int set = 0) { return {Op::Kind::wait, set, std::move(name), 0, {}, 0}; }
/// A call without a name that is not waited for.
inline Op launch(int signature = 0, int set = 0) { return {Op::Kind::launch, set, {}, signature, {}, 0}; }
/// Until all calls without a name that the rank has made in the set are over.
inline Op wait_launched(int set = 0) { return {Op::Kind::wait_launched, set, {}, 0, {}, 0}; }
inline Op wait_all() { return {Op::Kind::wait_all, 0, {}, 0, {}, 0}; }
/// Asks for a moment, as an unfinished done() does.
inline Op poll() { return {Op::Kind::poll, 0, {}, 0, {}, 0}; }
inline Op end_step(int set = 0) { return {Op::Kind::end_step, set, {}, 0, {}, 0}; }
/// Waits until the members have made it.
inline Op make_set(int set, std::vector<std::int32_t> ranks, std::string name = {}) {
  return {Op::Kind::make_set, set, std::move(name), 0, std::move(ranks), 0};
}
/// The same, but after the deadline it fails alone.
inline Op try_set(int set, std::vector<std::int32_t> ranks, std::string name = {}) {
  Op op = make_set(set, std::move(ranks), std::move(name));
  op.alone = true;
  return op;
}
/// Waits for nothing.
inline Op drop_set(int set) { return {Op::Kind::drop_set, set, {}, 0, {}, 0}; }
/// Waits until all members have.
inline Op join(int set = 0) { return {Op::Kind::join, set, {}, 0, {}, 0}; }
inline Op pause(Tick ticks) { return {Op::Kind::pause, 0, {}, 0, {}, ticks}; }
inline Op leave() { return {Op::Kind::leave, 0, {}, 0, {}, 0}; }
/// After `leave`: once nothing of the rank is in flight.
inline Op go() { return {Op::Kind::go, 0, {}, 0, {}, 0}; }
inline Op die() { return {Op::Kind::die, 0, {}, 0, {}, 0}; }
/// Nothing of the rank runs any more, and nobody notices.
inline Op stop() { return {Op::Kind::stop, 0, {}, 0, {}, 0}; }

/// Called with what passes between two machines; may change it, or return false to lose it.
struct Sabotage {
  std::function<bool(int rank, control::UpMessage&)> message = {};          ///< rank to leader
  std::function<bool(int rank, TensorId, control::CountWord&)> count = {};  ///< rank to leader
  std::function<bool(int node, control::UpMessage&)> relayed = {};          ///< relay to parent or sequencer
  std::function<void(std::vector<control::LogEntry>&)> decided = {};        ///< sequencer to log
  std::function<bool(int node, control::LogEntry&)> node_reads = {};        ///< log to relay and node
  std::function<bool(int rank, control::LogEntry&)> rank_reads = {};        ///< node to rank
};

struct Options {
  int ranks = 4;
  int ranks_per_node = 2;
  int fanout = 2;
  std::uint64_t seed = 1;
  Tick link_delay = 20;      ///< at most; every message's is drawn
  Tick pause = 10;           ///< at most, between a rank's operations
  Tick batch_duration = 30;  ///< at most, from the last member's execution to a member's completion
  Tick stall_warning = 0;    ///< 0: none. A tick is a millisecond where seconds are asked for.
  Tick deadline = 0;         ///< 0: none
  Tick death_notice = 50;    ///< at most
  Tick asks = 0;             ///< programs ask who is late, one in so many looks of a rank; 0: never
  std::int64_t fusion_threshold = 1 << 20;
  std::uint64_t open_batches = 4;
  std::uint32_t capacity = 4096;
  bool plan = true;
  double latch_timeout_s = 5;
  Tick patience = 60;  ///< at most, before a call that is waited for goes to the log
};

/// What has passed, to compare steps by.
struct Traffic {
  std::uint64_t counts = 0;         ///< count words published by ranks
  std::uint64_t declarations = 0;   ///< whole submissions by ranks
  std::uint64_t sequencer = 0;      ///< messages heard by the sequencer
  std::uint64_t link_messages = 0;  ///< between nodes, up
  std::uint64_t link_bytes = 0;     ///< of these
  std::uint64_t entries = 0;        ///< of the log
  std::uint64_t entry_bytes = 0;    ///< of these
};

class World {
 public:
  World(const Options& options, std::vector<core::Signature> signatures) : World(options, std::move(signatures), {}) {}
  World(const Options& options, std::vector<core::Signature> signatures, Sabotage sabotage)
      : options_(options), sabotage_(std::move(sabotage)), random_(options.seed) {
    for (core::Signature& s : signatures) signatures_.push_back(std::make_shared<const core::Signature>(std::move(s)));
    make_tree();
    control::SequencerOptions chosen;
    chosen.size = options.ranks;
    chosen.fusion_threshold = options.fusion_threshold;
    chosen.open_batches = options.open_batches;
    chosen.capacity = options.capacity;
    chosen.plan = options.plan;
    chosen.latch_timeout_s = options.latch_timeout_s;
    chosen.speaks_through = control::speakers(topology_, options.fanout);
    sequencer_ = std::make_unique<control::Sequencer>(chosen);
    std::vector<std::int32_t> all;
    for (int rank = 0; rank < options.ranks; ++rank) all.push_back(rank);
    members_[core::kGlobalSet] = all;
    give_memory(core::kGlobalSet);
    for (int rank = 0; rank < options.ranks; ++rank) make_shortcut(rank, core::kGlobalSet);
  }

  void set_program(int rank, Program program) { ranks_[index(rank)].program = std::move(program); }

  /// Runs until nothing happens any more, or an invariant is broken. Returns what was broken; empty: nothing.
  std::string run() {
    for (int rank = 0; rank < options_.ranks; ++rank) schedule_tick(rank, 1 + draw(options_.pause));
    while (!events_.empty() && violation_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      try {
        happen(event);
      } catch (const std::exception& refused) {
        violate(refused.what());
      }
    }
    if (violation_.empty()) check_end();
    return violation_;
  }

  // ---- what came of it
  [[nodiscard]] const std::vector<control::LogEntry>& log() const { return log_; }
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }
  [[nodiscard]] control::ParticipantCounters counters(int rank) const {
    return ranks_[index(rank)].participant->counters();
  }
  [[nodiscard]] const control::SequencerCounters& sequencer_counters() const { return sequencer_->counters(); }
  /// The messages of this rank's failed submissions, in order.
  [[nodiscard]] const std::vector<Status>& failures(int rank) const { return ranks_[index(rank)].failures; }
  [[nodiscard]] const std::vector<control::Stalled>& stalls(int rank) const { return ranks_[index(rank)].stalls; }
  /// Whom this rank was told to have joined last, by join.
  [[nodiscard]] const std::vector<std::int32_t>& joins(int rank) const { return ranks_[index(rank)].joins; }
  /// The ranks that contributed nothing to each batch, in the order of the log.
  [[nodiscard]] std::vector<std::vector<std::int32_t>> absent_by_batch() const {
    std::vector<std::vector<std::int32_t>> absent;
    for (const Record& record : records_) {
      if (record.is_batch) absent.push_back(record.absent);
    }
    return absent;
  }
  [[nodiscard]] const Status& fault(int rank) const { return ranks_[index(rank)].fault; }
  [[nodiscard]] std::uint64_t events() const { return happened_; }
  /// Calls without a name that have avoided the log.
  [[nodiscard]] std::uint64_t passed() const { return passed_; }
  [[nodiscard]] Tick now() const { return now_; }
  [[nodiscard]] control::Relay& relay(int node) { return *nodes_[index(node)].relay; }
  [[nodiscard]] const core::Topology& topology() const { return topology_; }
  /// Called whenever a rank ends a step (to take the traffic's measure).
  std::function<void(int rank)> on_end_step;

 private:
  /// Of a request; `members` where it names them, ascending.
  struct Key {
    Key(SetId of, std::string what, std::vector<std::int32_t> made_by = {})
        : set(of), name(std::move(what)), members(std::move(made_by)) {}
    SetId set;
    std::string name;
    std::vector<std::int32_t> members;
    friend bool operator<(const Key& a, const Key& b) {
      return std::tie(a.set, a.name, a.members) < std::tie(b.set, b.name, b.members);
    }
    friend bool operator==(const Key& a, const Key& b) = default;
  };

  struct Handle {
    Key key{core::kGlobalSet, ""};
    NameId name_id = 0;
    std::uint64_t ordinal = 0;  ///< this rank's submissions of the name so far
    bool pending = false;       ///< submitted, not complete
    bool running = false;       ///< its batch has been handed out
    bool warned = false;
    bool alone = false;  ///< its deadline ends only it
    Tick since = 0;
  };
  /// Of a sequence, in the log.
  struct Call {
    std::uint64_t number = 0;
    bool running = false;
    std::size_t entry = 0;  ///< of the log, which runs it
    bool warned = false;
    Tick since = 0;
  };
  struct Shortcut {
    explicit Shortcut(const core::ShortcutMemory& its_memory) : memory(its_memory), words(its_memory) {}
    core::ShortcutMemory memory;
    control::Shortcut words;
  };
  /// A rank's part in a set's sequence.
  struct Sequence {
    std::unique_ptr<Shortcut> shortcut;
    std::uint64_t made = 0;     ///< the number of the last call
    std::uint64_t given = 0;    ///< the last that went to the log
    std::uint64_t avoided = 0;  ///< the last that did not
    bool is_closed = false;     ///< a rank has joined
    std::deque<Call> launched;  ///< in flight in the log
  };
  /// The call that a rank waits for.
  struct Waiting {
    enum class For { nothing, words, inputs, log };
    For what = For::nothing;
    std::uint64_t number = 0;
    Tick due = 0;  ///< goes to the log then, or looks at the inputs
  };
  struct Rank {
    std::unique_ptr<control::Participant> participant;
    Program program;
    std::size_t at = 0;
    bool ticking = false;
    bool ended = false;  ///< fault or close read
    bool dead = false;
    bool blocked = false;
    Tick busy_until = 0;
    std::map<int, SetId> sets{{0, core::kGlobalSet}};  ///< by the program's number
    std::map<Key, Handle> handles;
    std::map<NameId, Handle*> by_name_id;
    std::map<SetId, Sequence> sequences;
    Waiting waiting;
    std::deque<control::UpMessage> ring;
    std::map<TensorId, control::CountWord> column;  ///< what the leader has not looked at
    std::size_t cursor = 0;                         ///< into the node's log
    std::vector<Status> failures;
    std::int32_t deserted_by =
        -1;  ///< an operation has failed because this rank has left, and none has succeeded since
    std::vector<control::Stalled> stalls;
    std::vector<std::int32_t> joins;
    bool is_joined = false;  ///< its program waits for a join, which is this:
    SetId join_set = 0;
    NameId join_name_id = 0;
    Tick join_since = 0;
    bool join_warned = false;
    bool join_over = false;
    Status fault;
    bool request_done = false;  ///< that the program waits for
    bool has_said_departure = false;
    bool is_cut_off = false;     ///< what it says is not heard, and it reads no log
    bool has_gone = false;       ///< and has said so
    std::size_t unfinished = 0;  ///< pending handles
  };
  struct Node {
    std::unique_ptr<control::Relay> relay;
    std::vector<std::size_t> log;  ///< numbers of entries, as they were read
    std::deque<control::LogEntry> altered;
    bool visiting = false;
    std::vector<int> children;
    std::size_t child_index = 0;    ///< of this node, at its parent's relay
    std::deque<control::Bytes> up;  ///< on the way to the parent
    Tick up_last = 0;
    bool is_cut_off = false;       ///< the log has ended here, because a leader has gone
    std::deque<std::size_t> down;  ///< entries on the way here
    Tick down_last = 0;
  };
  struct Event {
    enum class Kind { tick, visit, up, down, complete, notice, timer, overdue };
    Tick time = 0;
    std::uint64_t order = 0;
    Kind kind = Kind::tick;
    int who = 0;
    std::size_t what = 0;
    friend bool operator<(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  /// A name's history, all ranks together.
  struct Ledger {
    std::map<int, std::uint64_t> submitted;  ///< by rank
    std::vector<std::vector<int>> said;      ///< by ordinal - 1: the signatures (by rank of the set, -1: none)
    std::uint64_t consumed = 0;              ///< by the log
    std::uint64_t expired = 0;               ///< the last of these that a deadline has given up
    bool hopeless = false;                   ///< failed without being complete, because somebody has left
  };
  /// What has become of a call without a name.
  struct Words {
    std::map<int, int> said;  ///< signatures, by rank
    bool by_log = false;      ///< on some rank
    bool together = false;    ///< on some rank
  };
  /// What the ranks of a set share.
  struct Memory {
    struct Free {
      void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
    };
    std::unique_ptr<std::byte, Free> bytes;
  };
  /// What an entry consumes.
  struct Record {
    SetId set = 0;
    std::vector<std::int32_t> members;                         ///< of a request that names them
    std::vector<std::pair<std::string, std::uint64_t>> items;  ///< name, ordinal
    std::vector<std::int32_t> absent;                          ///< who contributes nothing
    std::map<Key, std::uint64_t> come_to;                      ///< of a join's end: the consumed, by name
    bool is_batch = false;
    std::size_t executed = 0;  ///< by how many members
  };

  // ---------------------------------------------------------------- making

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  Tick draw(Tick most) { return most == 0 ? 0 : random_() % (most + 1); }

  void make_tree() {
    topology_ = core::make_topology(0, std::vector<int>(index(options_.ranks), 0), options_.ranks_per_node);
    ranks_.resize(index(options_.ranks));
    for (int rank = 0; rank < options_.ranks; ++rank) {
      ranks_[index(rank)].participant = std::make_unique<control::Participant>(rank, options_.ranks);
    }
    nodes_.resize(index(topology_.node_count()));
    for (int node = 0; node < topology_.node_count(); ++node) {
      std::vector<std::vector<std::int32_t>> children;
      for (const int rank : topology_.nodes[index(node)]) children.push_back({rank});
      const std::size_t local = children.size();
      nodes_[index(node)].children = topology_.tree_children(node, options_.fanout);
      for (const int child : nodes_[index(node)].children) {
        nodes_[index(child)].child_index = children.size();
        children.push_back(topology_.tree_ranks(child, options_.fanout));
      }
      nodes_[index(node)].relay =
          std::make_unique<control::Relay>(options_.ranks, std::move(children), local, options_.open_batches);
    }
  }

  // ---------------------------------------------------------------- events

  void schedule(Tick time, Event::Kind kind, int who, std::size_t what = 0) {
    events_.push({time, ++order_, kind, who, what});
  }
  void schedule_tick(int rank, Tick delay) {
    Rank& r = ranks_[index(rank)];
    if (r.ticking || r.dead) return;
    r.ticking = true;
    schedule(now_ + delay, Event::Kind::tick, rank);
  }
  void schedule_visit(int node) {
    Node& n = nodes_[index(node)];
    if (n.visiting) return;
    n.visiting = true;
    schedule(now_ + 1 + draw(options_.link_delay / 4), Event::Kind::visit, node);
  }

  void happen(const Event& event) {
    ++happened_;
    switch (event.kind) {
    case Event::Kind::tick:
      return tick(event.who);
    case Event::Kind::visit:
      return visit(event.who);
    case Event::Kind::up:
      return arrive_up(event.who);
    case Event::Kind::down:
      return arrive_down(event.who);
    case Event::Kind::complete:
      return complete(event.who, event.what);
    case Event::Kind::notice:
      return notice(event.who);
    case Event::Kind::timer:
      timer_ = ~Tick{0};
      return decide();
    case Event::Kind::overdue:
      return look_at_waits(event.who);
    }
  }

  void violate(const std::string& what) {
    if (violation_.empty()) violation_ = "at " + std::to_string(now_) + ": " + what;
  }

  // ---------------------------------------------------------------- a rank

  void tick(int rank) {
    Rank& r = ranks_[index(rank)];
    r.ticking = false;
    if (r.dead) return;
    read_log(rank);
    if (violation_.empty() && !r.ended) run_program(rank);
    if (options_.asks > 0 && !r.ended && !r.dead && draw(options_.asks - 1) == 0) ask_who_is_late(r);
    publish(rank);
    const Node& node = nodes_[index(topology_.node_of[index(rank)])];
    if (r.ended) return;
    const bool goes_on = !r.blocked && r.at < r.program.size();
    // A program that pauses does not keep its engine from reading the log.
    if (goes_on && r.busy_until > now_) schedule(r.busy_until, Event::Kind::tick, rank);
    if (r.cursor < node.log.size() || (goes_on && r.busy_until <= now_)) schedule_tick(rank, 1 + draw(options_.pause));
  }

  void read_log(int rank) {
    Rank& r = ranks_[index(rank)];
    const Node& node = nodes_[index(topology_.node_of[index(rank)])];
    std::size_t entries = node.log.size() - r.cursor;
    if (entries > 1 && draw(3) == 0) entries = 1 + draw(entries - 1);
    std::vector<control::Action> actions;
    for (; entries > 0 && violation_.empty() && !r.ended; --entries) {
      const std::size_t number = node.log[r.cursor++];
      control::LogEntry entry = log_[number];
      if (sabotage_.rank_reads && !sabotage_.rank_reads(rank, entry)) continue;
      actions.clear();
      r.participant->on_log(entry, actions);
      if (const auto* joined = std::get_if<control::RankJoined>(&entry)) r.sequences[joined->set].is_closed = true;
      if (cuts_off(entry, topology_.node_of[index(rank)])) r.ended = r.is_cut_off = true;
      for (control::Action& action : actions) {
        std::visit([&](auto& value) { act(rank, number, value); }, action);
      }
    }
  }

  void publish(int rank) {
    Rank& r = ranks_[index(rank)];
    control::Outbox& outbox = r.participant->outbox();
    if (outbox.empty()) return;
    for (control::UpMessage& message : outbox.messages) {
      traffic_.declarations += std::holds_alternative<control::Declared>(message) ? 1U : 0U;
      if (sabotage_.message && !sabotage_.message(rank, message)) continue;
      r.ring.push_back(std::move(message));
    }
    for (auto& [id, word] : outbox.counts) {
      ++traffic_.counts;
      note_drop(rank, id, word);
      if (sabotage_.count && !sabotage_.count(rank, id, word)) continue;
      r.column[id] = word;
    }
    if (outbox.departed) {
      r.has_said_departure = true;
      control::UpMessage left = *outbox.departed;
      if (!sabotage_.message || sabotage_.message(rank, left)) r.ring.push_back(std::move(left));
    }
    outbox = {};
    schedule_visit(topology_.node_of[index(rank)]);
  }

  // ---- the program

  void run_program(int rank) {
    Rank& r = ranks_[index(rank)];
    r.blocked = false;
    r.participant->set_awaiting(false);
    for (std::size_t budget = 1 + draw(12); budget > 0 && r.at < r.program.size() && now_ >= r.busy_until; --budget) {
      if (!execute(rank, r.program[r.at])) {
        r.blocked = true;
        r.participant->set_awaiting(true);
        return;
      }
      ++r.at;
      if (r.dead) return;
    }
  }

  /// False when it must wait.
  bool execute(int rank, const Op& op) {
    Rank& r = ranks_[index(rank)];
    const auto set = r.sets.find(op.set);
    if (set == r.sets.end() && op.kind != Op::Kind::make_set) return true;
    switch (op.kind) {
    case Op::Kind::submit:
      return do_submit(rank, {set->second, op.name}, op.signature);
    case Op::Kind::call:
      return call(rank, set->second, op.signature);
    case Op::Kind::launch:
      give(rank, set->second, ++r.sequences[set->second].made, op.signature);
      return true;
    case Op::Kind::wait_launched:
      return r.sequences[set->second].launched.empty();
    case Op::Kind::wait: {
      const auto found = r.handles.find({set->second, op.name});
      return found == r.handles.end() || !found->second.pending;
    }
    case Op::Kind::wait_all:
      return r.unfinished == 0;
    case Op::Kind::poll:
      r.participant->set_awaiting(true);
      static_cast<void>(r.participant->outbox());
      r.participant->set_awaiting(false);
      return true;
    case Op::Kind::end_step:
      r.participant->end_step(set->second);
      if (on_end_step) on_end_step(rank);
      return true;
    case Op::Kind::make_set:
      return make_set(rank, op);
    case Op::Kind::drop_set:
      dropped_.insert({set->second, rank});
      r.participant->drop(set->second);
      r.sets.erase(set);
      return true;
    case Op::Kind::join:
      return join(rank, set->second);
    case Op::Kind::pause:
      r.busy_until = now_ + op.ticks;
      return true;
    case Op::Kind::leave:
      for (const auto& [number, its_set] : r.sets) r.participant->pass(its_set, r.sequences[its_set].avoided);
      r.participant->leave();
      return true;
    case Op::Kind::go:
      return go(rank);
    case Op::Kind::die:
      perish(rank);
      return true;
    case Op::Kind::stop:
      r.dead = true;
      return true;
    }
    return true;
  }

  bool do_submit(int rank, const Key& key, int number) {
    Rank& r = ranks_[index(rank)];
    Handle& handle = r.handles[key];
    if (handle.pending) return false;
    begin(rank, key, handle, r.participant->open(key.set, key.name), number);
    // The same object as before is the fast path; an equal one must do as well.
    const auto& signature = signatures_[index(number)];
    r.participant->submit(handle.name_id,
                          draw(3) == 0 ? std::make_shared<const core::Signature>(*signature) : signature);
    return true;
  }

  // ---- its calls without a name

  /// A set's memory is that of one which is gone, if there is one.
  void give_memory(SetId set) {
    const std::size_t column = core::ShortcutMemory::column_bytes(0);
    if (free_memory_.empty()) {
      const std::size_t bytes = index(options_.ranks) * column;
      free_memory_.emplace_back();
      free_memory_.back().bytes.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096})));
      std::memset(free_memory_.back().bytes.get(), 0, bytes);
    }
    memory_[set] = std::move(free_memory_.back());
    free_memory_.pop_back();
  }

  void make_shortcut(int rank, SetId set) {
    const std::vector<std::int32_t>& members = members_[set];
    const auto place = static_cast<int>(std::lower_bound(members.begin(), members.end(), rank) - members.begin());
    auto columns = base::Columns::in_a_row(memory_[set].bytes.get(), core::ShortcutMemory::column_bytes(0),
                                           static_cast<int>(members.size()));
    ranks_[index(rank)].sequences[set].shortcut =
        std::make_unique<Shortcut>(core::ShortcutMemory(std::move(columns), 0, place));
  }

  /// What a rank gives the others in a call.
  static std::uint64_t input_of(int rank, std::uint64_t number) {
    return number * 1000 + static_cast<std::uint64_t>(rank);
  }

  /// Whether the next call may avoid the log: no rank has joined or left, and the call before is over here.
  bool may_avoid_log(Rank& r, SetId set) {
    const Sequence& sequence = r.sequences[set];
    const bool is_first = set != core::kGlobalSet && sequence.made == 0;
    return !is_first && !sequence.is_closed && r.participant->departed().empty() && sequence.launched.empty();
  }

  /// False when it must wait.
  bool call(int rank, SetId set, int signature) {
    Rank& r = ranks_[index(rank)];
    switch (r.waiting.what) {
    case Waiting::For::nothing:
      begin_call(rank, set, signature);
      return false;
    case Waiting::For::words:
      look_at_words(rank, set, signature);
      return false;
    case Waiting::For::inputs:
      if (now_ < r.waiting.due) return false;
      check_inputs(rank, set);
      break;
    case Waiting::For::log: {
      const std::deque<Call>& calls = r.sequences[set].launched;
      const auto is_this = [&r](const Call& call) { return call.number == r.waiting.number; };
      if (std::any_of(calls.begin(), calls.end(), is_this)) return false;
      break;
    }
    }
    r.waiting = {};
    return true;
  }

  void begin_call(int rank, SetId set, int signature) {
    Rank& r = ranks_[index(rank)];
    Sequence& sequence = r.sequences[set];
    const bool may_avoid = may_avoid_log(r, set);
    r.waiting = {Waiting::For::words, ++sequence.made, now_ + draw(options_.patience)};
    if (!may_avoid) return go_to_log(rank, set, signature);
    words_[{set, sequence.made}].said[rank] = signature;
    sequence.shortcut->words.begin(sequence.made);
    const std::uint64_t input = input_of(rank, sequence.made);
    const core::ShortcutMemory& memory = sequence.shortcut->memory;
    std::memcpy(memory.inlined(memory.local_rank(), sequence.made), &input, sizeof input);
    sequence.shortcut->words.speak(static_cast<control::Shortcut::Tag>(signature));
    schedule(r.waiting.due, Event::Kind::tick, rank);
    wake_callers(set);
  }

  void look_at_words(int rank, SetId set, int signature) {
    Rank& r = ranks_[index(rank)];
    control::Shortcut& shortcut = r.sequences[set].shortcut->words;
    control::Shortcut::Verdict verdict = shortcut.look();
    if (verdict == control::Shortcut::Verdict::undecided && now_ >= r.waiting.due) verdict = shortcut.demote();
    if (verdict == control::Shortcut::Verdict::undecided) return;
    wake_callers(set);
    if (verdict == control::Shortcut::Verdict::by_log) return go_to_log(rank, set, signature);
    note_together(rank, set);
    r.waiting.what = Waiting::For::inputs;
    r.waiting.due = now_ + draw(options_.pause);
    schedule(r.waiting.due, Event::Kind::tick, rank);
  }

  void go_to_log(int rank, SetId set, int signature) {
    Rank& r = ranks_[index(rank)];
    r.waiting.what = Waiting::For::log;
    give(rank, set, r.waiting.number, signature);
  }

  void wake_callers(SetId set) {
    for (const std::int32_t member : members_[set]) {
      if (ranks_[index(member)].waiting.what == Waiting::For::words) schedule_tick(member, 1 + draw(options_.pause));
    }
  }

  void check_inputs(int rank, SetId set) {
    const std::uint64_t number = ranks_[index(rank)].waiting.number;
    const core::ShortcutMemory& memory = ranks_[index(rank)].sequences[set].shortcut->memory;
    for (std::size_t place = 0; place < members_[set].size(); ++place) {
      std::uint64_t input = 0;
      std::memcpy(&input, memory.inlined(static_cast<int>(place), number), sizeof input);
      if (input == input_of(members_[set][place], number)) continue;
      return violate("rank " + std::to_string(rank) + " does not find the input of rank " +
                     std::to_string(members_[set][place]) + " to call " + std::to_string(number));
    }
  }

  /// A call avoids the log on this rank.
  void note_together(int rank, SetId set) {
    const std::uint64_t number = ranks_[index(rank)].waiting.number;
    Words& words = words_[{set, number}];
    const std::string what = "call " + std::to_string(number) + " avoids the log on rank " + std::to_string(rank);
    ranks_[index(rank)].sequences[set].avoided = number;
    if (words.by_log) return violate(what + ", and on others it does not");
    if (std::exchange(words.together, true)) return;
    const int signature = words.said[rank];
    const auto differs = [signature](const auto& said) { return said.second != signature; };
    if (words.said.size() < members_[set].size() || std::any_of(words.said.begin(), words.said.end(), differs)) {
      return violate(what + ", though not all have said the same");
    }
    Ledger& ledger = ledgers_[Key(set, control::kSequence)];
    if (ledger.consumed + 1 != number || !absent_[set].empty()) return violate(what + ", too early or too late");
    ledger.consumed = number;
    ledger.said.resize(std::max<std::size_t>(ledger.said.size(), number));
    for (const std::int32_t member : members_[set]) ledger.submitted[member] = number;
    ++passed_;
  }

  /// A call goes to the log.
  void give(int rank, SetId set, std::uint64_t number, int signature) {
    Rank& r = ranks_[index(rank)];
    Sequence& sequence = r.sequences[set];
    Words& words = words_[{set, number}];
    words.by_log = true;
    if (words.together) {
      return violate("call " + std::to_string(number) + " goes to the log on rank " + std::to_string(rank) +
                     ", and on others it does not");
    }
    const auto& given = signatures_[index(signature)];
    r.participant->call(set, draw(3) == 0 ? std::make_shared<const core::Signature>(*given) : given, number);
    sequence.shortcut->words.give(number);
    sequence.given = number;
    sequence.launched.push_back({number, false, 0, false, now_});
    ++r.unfinished;
    note_submission(rank, {set, control::kSequence}, number, signature);
    wake_callers(set);
    if (options_.stall_warning > 0) schedule(now_ + options_.stall_warning, Event::Kind::overdue, rank);
    if (options_.deadline > 0) schedule(now_ + options_.deadline, Event::Kind::overdue, rank);
  }

  void begin(int rank, const Key& key, Handle& handle, NameId name_id, int number) {
    Rank& r = ranks_[index(rank)];
    handle.key = key;
    handle.name_id = name_id;
    r.by_name_id[handle.name_id] = &handle;
    handle.pending = true;
    handle.running = handle.warned = false;
    handle.since = now_;
    ++handle.ordinal;
    ++r.unfinished;
    note_submission(rank, key, handle.ordinal, number);
    if (options_.stall_warning > 0) schedule(now_ + options_.stall_warning, Event::Kind::overdue, rank);
    if (options_.deadline > 0) schedule(now_ + options_.deadline, Event::Kind::overdue, rank);
  }

  bool make_set(int rank, const Op& op) {
    Rank& r = ranks_[index(rank)];
    if (std::exchange(r.request_done, false)) return true;
    std::vector<std::int32_t> members = op.ranks;
    std::sort(members.begin(), members.end());
    const Key key(core::kGlobalSet, op.name, members);
    Handle& handle = r.handles[key];
    if (handle.pending) return false;
    unsigned order = 1000;  // of the members, as a number: they must agree on it
    for (const std::int32_t member : op.ranks) order = order * 31 + static_cast<unsigned>(member) + 1;
    if (const std::optional<Status> failed = r.participant->take_failure(op.ranks, op.name)) {
      fail_at_once(rank, key, *failed, static_cast<int>(order));
      return true;
    }
    handle.alone = op.alone;
    begin(rank, key, handle, r.participant->ask_for_set(op.ranks, op.name, op.alone), static_cast<int>(order));
    return false;
  }

  /// The others have given up this request of a rank before the rank made it.
  void fail_at_once(int rank, const Key& key, const Status& status, int signature) {
    Rank& r = ranks_[index(rank)];
    Handle& handle = r.handles[key];
    handle.key = key;
    note_submission(rank, key, ++handle.ordinal, signature);
    if (handle.ordinal > ledgers_[key].expired)
      violate("rank " + std::to_string(rank) + " fails a request that the log has not given up");
    r.failures.push_back(status);
  }

  bool join(int rank, SetId set) {
    Rank& r = ranks_[index(rank)];
    if (std::exchange(r.join_over, false)) return true;
    if (r.is_joined) return false;
    r.is_joined = true;
    r.join_set = set;
    r.join_warned = false;
    joining_.insert({set, rank});
    r.join_name_id = r.participant->join(set, r.sequences[set].made);
    watch_join(rank);
    return false;
  }

  /// Its deadline counts from here.
  void watch_join(int rank) {
    ranks_[index(rank)].join_since = now_;
    if (options_.stall_warning > 0) schedule(now_ + options_.stall_warning, Event::Kind::overdue, rank);
    if (options_.deadline > 0) schedule(now_ + options_.deadline, Event::Kind::overdue, rank);
  }

  void end_join(int rank, std::size_t entry) {
    Rank& r = ranks_[index(rank)];
    r.is_joined = false;
    r.join_over = true;
    for (const auto& [key, consumed] : records_[entry].come_to) {
      Handle& handle = r.handles[key];
      handle.key = key;
      handle.ordinal = std::max(handle.ordinal, consumed);
    }
  }

  /// This rank has done with a set, and has not left before.
  void note_drop(int rank, TensorId id, control::CountWord word) {
    if (id < core::kFirstRow || word.count == 0 || (id - core::kFirstRow) % core::kReservedIds != core::kDropped)
      return;
    const SetId set = meaning_.at(id - core::kDropped).set;
    if (!ranks_[index(rank)].has_said_departure) ++done_with_[set];
  }

  /// As `ControlLoop::go`. False when it must wait. A leader serves its node until the log ends there.
  bool go(int rank) {
    Rank& r = ranks_[index(rank)];
    const auto has_launched = [](const auto& item) { return !item.second.launched.empty(); };
    const auto is_running = [rank](const auto& item) { return item.first.first == rank; };  // also while it is absent
    if (r.unfinished > 0 || std::any_of(r.sequences.begin(), r.sequences.end(), has_launched) ||
        std::any_of(running_.begin(), running_.end(), is_running)) {
      return false;
    }
    publish(rank);
    r.ring.emplace_back(control::RankLost{rank, ErrorCode::rank_lost, control::kStopped});
    schedule_visit(topology_.node_of[index(rank)]);
    r.has_gone = have_gone_ = true;
    r.dead = topology_.leader_of(topology_.node_of[index(rank)]) != rank;
    return true;
  }

  /// Whether the log ends for the node behind the entry (`Leader::cuts_off`).
  bool cuts_off(const control::LogEntry& entry, int node) const {
    const auto* const left = std::get_if<control::RankDeparted>(&entry);
    for (; left != nullptr && left->gone && node > 0; node = core::Topology::tree_parent(node, options_.fanout)) {
      if (topology_.leader_of(node) == left->rank) return true;
    }
    return false;
  }

  void perish(int rank) {
    Rank& r = ranks_[index(rank)];
    r.dead = true;
    schedule(now_ + 1 + draw(options_.death_notice), Event::Kind::notice, rank);
  }

  void look_at_waits(int rank) {
    Rank& r = ranks_[index(rank)];
    if (r.dead || r.ended) return;
    for (auto& [key, handle] : r.handles) {
      if (!handle.pending) continue;
      const Tick waited = now_ - handle.since;
      const double seconds = static_cast<double>(waited) / 1000;
      if (options_.deadline > 0 && waited >= options_.deadline) {
        if (handle.running) {
          r.participant->overdue_running(key.set, key.name, seconds);
        } else {
          r.participant->overdue(handle.name_id, seconds, true);
        }
      } else if (options_.stall_warning > 0 && waited >= options_.stall_warning && !handle.warned) {
        handle.warned = true;
        if (!handle.running) r.participant->overdue(handle.name_id, seconds, false);
      }
    }
    for (auto& [set, sequence] : r.sequences) {
      if (!sequence.launched.empty()) look_at_call(r, set, sequence.launched.front());
    }
    if (r.is_joined) look_at_join(r);
    publish(rank);
  }

  /// About all that is in flight: most questions are answered when the wait is over.
  void ask_who_is_late(Rank& r) {
    for (auto& [key, handle] : r.handles) {
      if (handle.pending && !handle.running) r.participant->ask(handle.name_id, 0.001);
    }
    for (auto& [set, sequence] : r.sequences) {
      for (const Call& call : sequence.launched) {
        if (!call.running) r.participant->ask_call(set, call.number, core::CollectiveKind::allreduce, 0.001);
      }
    }
  }

  /// The first in flight: the others wait for it.
  void look_at_call(Rank& r, SetId set, Call& call) {
    const Tick waited = now_ - call.since;
    const bool is_late = options_.deadline > 0 && waited >= options_.deadline;
    const bool warn = options_.stall_warning > 0 && waited >= options_.stall_warning && !call.warned;
    if (!is_late && (!warn || call.running)) return;
    call.warned = true;
    r.participant->overdue_call(set, call.number, core::CollectiveKind::allreduce, static_cast<double>(waited) / 1000,
                                is_late, call.running);
  }

  void look_at_join(Rank& r) {
    const Tick waited = now_ - r.join_since;
    const bool is_late = options_.deadline > 0 && waited >= options_.deadline;
    const bool warn = options_.stall_warning > 0 && waited >= options_.stall_warning && !r.join_warned;
    if (!is_late && !warn) return;
    r.join_warned = true;
    r.participant->overdue(r.join_name_id, static_cast<double>(waited) / 1000, is_late);
  }

  // ---- what the log asks of a rank

  void finish(int rank, Handle& handle) {
    handle.pending = handle.running = false;
    --ranks_[index(rank)].unfinished;
  }

  /// An operation of these ranks has failed: if because one of them has left, the rank says so at once, before its
  /// program learns of it (messages.hpp, "First causes").
  void note_failure(int rank, const Status& status, const std::vector<std::int32_t>& members) {
    Rank& r = ranks_[index(rank)];
    r.failures.push_back(status);
    const std::int32_t by = r.participant->earliest_to_leave(members);
    if (status.code() != ErrorCode::rank_lost || by < 0 || by == std::exchange(r.deserted_by, by)) return;
    r.ring.emplace_back(control::Deserted{rank, by});
    schedule_visit(topology_.node_of[index(rank)]);
  }
  /// An operation has succeeded.
  void note_success(int rank) {
    Rank& r = ranks_[index(rank)];
    if (std::exchange(r.deserted_by, -1) < 0) return;
    r.ring.emplace_back(control::Deserted{rank, -1});
    schedule_visit(topology_.node_of[index(rank)]);
  }

  Handle* handle_of(int rank, NameId name_id) {
    const auto found = ranks_[index(rank)].by_name_id.find(name_id);
    if (found == ranks_[index(rank)].by_name_id.end() || !found->second->pending || found->second->running) {
      violate("rank " + std::to_string(rank) + " is told about a name that has nothing in flight");
      return nullptr;
    }
    return found->second;
  }

  void act(int rank, std::size_t entry, control::RunBatch& run) {
    Record& record = records_[entry];
    if (!record.is_batch || record.set != run.set || record.items.size() != run.members.size()) {
      return violate("rank " + std::to_string(rank) + " runs what entry " + std::to_string(entry) + " does not say");
    }
    if (record.absent != run.absent) {
      return violate("rank " + std::to_string(rank) + " runs entry " + std::to_string(entry) +
                     " with other contributors than submitted it");
    }
    const bool contributes = !std::binary_search(run.absent.begin(), run.absent.end(), rank);
    for (std::size_t i = 0; i < run.members.size(); ++i) {
      if (!contributes) {
        const control::Participant& participant = *ranks_[index(rank)].participant;
        if (participant.name_of(run.members[i]) == record.items[i].first && !participant.in_flight(run.members[i]) &&
            !participant.signature_of(run.members[i])->tensors.empty())
          continue;
        return violate("rank " + std::to_string(rank) + " has joined, and runs something else than the others");
      }
      Handle* handle = handle_of(rank, run.members[i]);
      if (handle == nullptr) return;
      if (handle->key != Key(record.set, record.items[i].first) || handle->ordinal != record.items[i].second) {
        return violate("rank " + std::to_string(rank) + " runs submission " + std::to_string(handle->ordinal) +
                       " of '" + handle->key.name + "' where the log says " + record.items[i].first + " " +
                       std::to_string(record.items[i].second));
      }
      handle->running = true;
    }
    started(rank, entry, run.set, run.members);
  }

  void started(int rank, std::size_t entry, SetId set, const std::vector<NameId>& members) {
    running_[{rank, entry}] = members;
    if (ranks_[index(rank)].is_joined && ranks_[index(rank)].join_set == set) watch_join(rank);
    if (++records_[entry].executed == members_[set].size()) {
      for (const std::int32_t member : members_[set]) {
        schedule(now_ + 1 + draw(options_.batch_duration), Event::Kind::complete, member, entry);
      }
    }
  }

  // ---- its sequences

  /// The first call that does not run yet.
  Call* next_call(int rank, SetId set) {
    for (Call& call : ranks_[index(rank)].sequences[set].launched) {
      if (!call.running) return &call;
    }
    violate("rank " + std::to_string(rank) + " is told about a call that it has not made");
    return nullptr;
  }

  void act(int rank, std::size_t entry, control::RunCalls& run) {
    Record& record = records_[entry];
    if (!record.is_batch || record.set != run.set || record.items.size() != run.calls || record.absent != run.absent) {
      return violate("rank " + std::to_string(rank) + " runs other calls than entry " + std::to_string(entry));
    }
    const bool contributes = !std::binary_search(run.absent.begin(), run.absent.end(), rank);
    std::uint64_t known = 0;
    for (const auto& repeat : run.repeats) known += repeat.count;
    if (!contributes && known != run.calls) return violate("a rank has joined, and is not told what the others run");
    for (std::size_t i = 0; contributes && i < run.calls; ++i) {
      Call* const call = next_call(rank, run.set);
      if (call == nullptr) return;
      if (call->number != record.items[i].second) {
        return violate("rank " + std::to_string(rank) + " runs call " + std::to_string(call->number) +
                       " where the log runs " + std::to_string(record.items[i].second));
      }
      call->running = true;
      call->entry = entry;
    }
    started(rank, entry, run.set, {});
  }

  void act(int rank, std::size_t entry, control::FailCall& fail) {
    Call* const call = next_call(rank, fail.set);
    if (call == nullptr) return;
    if (call->number != records_[entry].items.front().second) {
      return violate("rank " + std::to_string(rank) + " fails another call than the log");
    }
    std::deque<Call>& calls = ranks_[index(rank)].sequences[fail.set].launched;
    calls.erase(calls.begin() + place_of(calls, call));
    --ranks_[index(rank)].unfinished;
    ranks_[index(rank)].failures.push_back(fail.status);
  }

  static std::ptrdiff_t place_of(const std::deque<Call>& calls, const Call* call) {
    return std::find_if(calls.begin(), calls.end(), [call](const Call& one) { return &one == call; }) - calls.begin();
  }

  void act(int rank, std::size_t, control::FailLastCalls& fail) {
    Rank& r = ranks_[index(rank)];
    std::deque<Call>& calls = r.sequences[fail.set].launched;
    while (!calls.empty() && calls.back().number > fail.last) {
      if (calls.back().running) return violate("rank " + std::to_string(rank) + " fails a call that runs");
      calls.pop_back();
      --r.unfinished;
      note_failure(rank, fail.status, members_[fail.set]);
    }
  }

  void complete_calls(int rank, std::size_t entry) {
    Rank& r = ranks_[index(rank)];
    std::deque<Call>& calls = r.sequences[records_[entry].set].launched;
    const auto is_over = [entry](const Call& call) { return call.running && call.entry == entry; };
    const auto end = std::remove_if(calls.begin(), calls.end(), is_over);
    r.unfinished -= static_cast<std::size_t>(calls.end() - end);
    calls.erase(end, calls.end());
  }

  void complete(int rank, std::size_t entry) {
    Rank& r = ranks_[index(rank)];
    if (r.dead || r.ended) return;
    if (std::holds_alternative<control::SequenceAppended>(log_[entry])) {
      complete_calls(rank, entry);
      running_.erase({rank, entry});
      r.participant->completed(records_[entry].set);
      return schedule_tick(rank, 1);
    }
    const auto found = running_.find({rank, entry});
    const SetId set = records_[entry].set;
    const std::vector<std::int32_t>& absent = records_[entry].absent;
    const bool contributes = !std::binary_search(absent.begin(), absent.end(), rank);
    for (std::size_t i = 0; contributes && i < found->second.size(); ++i) {
      // By name: the number may have been given away meanwhile.
      finish(rank, r.handles.at(Key(set, records_[entry].items[i].first)));
      note_success(rank);
    }
    running_.erase(found);
    r.participant->completed(set);
    schedule_tick(rank, 1);
  }

  void act(int rank, std::size_t entry, control::JoinDone& done) {
    Rank& r = ranks_[index(rank)];
    if (!r.is_joined || r.join_set != done.set || r.join_name_id != done.name) {
      return violate("rank " + std::to_string(rank) + " is told of the end of a join that it has not made");
    }
    r.sequences[done.set].made = std::max(r.sequences[done.set].made, done.calls);
    if (done.status.ok()) {
      r.joins.push_back(done.last);
      r.sequences[done.set].is_closed = false;
    } else {
      note_failure(rank, done.status, members_[done.set]);
    }
    end_join(rank, entry);
  }

  void act(int rank, std::size_t entry, control::FailName& fail) {
    Handle* handle = handle_of(rank, fail.name);
    if (handle == nullptr) return;
    const Record& record = records_[entry];
    const bool by_name = std::holds_alternative<control::Failed>(log_[entry]);
    if (by_name && (record.items.front().first != handle->key.name || record.members != handle->key.members ||
                    (record.items.front().second != 0 && record.items.front().second != handle->ordinal))) {
      return violate("rank " + std::to_string(rank) + " fails another submission than the log");
    }
    note_failure(rank, fail.status, members_of(handle->key));
    if (!handle->key.members.empty()) ranks_[index(rank)].request_done = true;
    finish(rank, *handle);
  }
  void act(int rank, std::size_t, control::ForgetName& forget) { ranks_[index(rank)].by_name_id.erase(forget.name); }
  void act(int, std::size_t, control::DropPlan&) {}
  void act(int rank, std::size_t, control::ReportStall& report) { ranks_[index(rank)].stalls.push_back(report.stall); }
  void act(int rank, std::size_t, control::SetMade& made) {
    Rank& r = ranks_[index(rank)];
    Handle* handle = handle_of(rank, made.name);
    if (handle == nullptr) return;
    finish(rank, *handle);
    r.request_done = true;
    r.sets[r.program[r.at].set] = made.set;
    make_shortcut(rank, made.set);
  }
  void act(int, std::size_t, control::SetGone&) {}
  void act(int rank, std::size_t, control::WorldFault& fault) {
    ranks_[index(rank)].fault = fault.status;
    ranks_[index(rank)].ended = true;
  }
  void act(int rank, std::size_t, control::WorldClosed&) { ranks_[index(rank)].ended = true; }
  void act(int, std::size_t, control::PushTransport&) {}
  void act(int rank, std::size_t, control::AnswerQuery& query) {
    Rank& r = ranks_[index(rank)];
    const auto runs = [](const auto& item) { return item.second.pending && item.second.running; };
    const auto calls_run = [](const auto& item) {
      return !item.second.launched.empty() && item.second.launched.front().running;
    };
    const bool waits = std::any_of(r.handles.begin(), r.handles.end(), runs) ||
                       std::any_of(r.sequences.begin(), r.sequences.end(), calls_run);
    query.answer.doing = waits ? control::Doing::waiting : control::Doing::nothing;
    for (const auto& [key, handle] : r.handles) {
      if (query.answer.submitted || !r.blocked || !handle.pending || handle.running) continue;
      query.answer.wait = control::Request{key.set, key.name, handle.ordinal, key.members};
    }
    r.participant->answer(std::move(query.answer));
  }

  // ---------------------------------------------------------------- a node

  bool leader_dead(int node) const {
    return ranks_[index(topology_.leader_of(node))].dead || nodes_[index(node)].is_cut_off;
  }

  void visit(int node) {
    Node& n = nodes_[index(node)];
    n.visiting = false;
    if (leader_dead(node)) return;
    const std::vector<int>& local = topology_.nodes[index(node)];
    bool more = false;
    for (std::size_t child = 0; child < local.size(); ++child) {
      Rank& r = ranks_[index(local[child])];
      const bool counts_first = draw(1) == 0;
      if (counts_first) hear_counts(*n.relay, child, r);
      std::size_t messages = r.ring.size();
      if (messages > 0 && draw(3) == 0) messages = draw(messages);
      for (; messages > 0; --messages) {
        if (std::holds_alternative<control::Departed>(r.ring.front())) hear_counts(*n.relay, child, r);
        n.relay->on_message(child, std::move(r.ring.front()));
        r.ring.pop_front();
      }
      more = more || !r.ring.empty();
      if (!counts_first) hear_counts(*n.relay, child, r);
    }
    if (more) schedule_visit(node);
    pass_on(node);
  }

  static void hear_counts(control::Relay& relay, std::size_t child, Rank& rank) {
    for (const auto& [id, word] : rank.column) relay.on_count(child, id, word);
    rank.column.clear();
  }

  void pass_on(int node) {
    Node& n = nodes_[index(node)];
    std::vector<control::UpMessage> messages;
    n.relay->end_pass();
    messages.swap(n.relay->outbox());
    if (messages.empty()) return;
    for (control::UpMessage& message : messages) {
      if (sabotage_.relayed && !sabotage_.relayed(node, message)) continue;
      if (node == 0) {
        ++traffic_.sequencer;
        readiness_.hear(message);
        sequencer_->on_message(message, time());
        continue;
      }
      control::Bytes bytes;
      control::encode(message, bytes);
      ++traffic_.link_messages;
      traffic_.link_bytes += bytes.size();
      n.up.push_back(std::move(bytes));
      n.up_last = std::max(n.up_last, now_ + 1 + draw(options_.link_delay));
      schedule(n.up_last, Event::Kind::up, node);
    }
    if (node == 0) decide();
  }

  void arrive_up(int node) {
    Node& n = nodes_[index(node)];
    const int parent = core::Topology::tree_parent(node, options_.fanout);
    control::UpMessage message = control::decode_up(n.up.front());
    n.up.pop_front();
    if (leader_dead(parent)) return;
    nodes_[index(parent)].relay->on_message(n.child_index, std::move(message));
    pass_on(parent);
  }

  /// The leader reads what a rank has published before it looks at its end.
  void hear_last_words(int node, int rank) {
    const std::vector<int>& local = topology_.nodes[index(node)];
    const auto child = static_cast<std::size_t>(std::find(local.begin(), local.end(), rank) - local.begin());
    Rank& r = ranks_[index(rank)];
    hear_counts(*nodes_[index(node)].relay, child, r);
    for (; !r.ring.empty(); r.ring.pop_front()) nodes_[index(node)].relay->on_message(child, std::move(r.ring.front()));
  }

  void notice(int rank) {
    int node = topology_.node_of[index(rank)];
    if (leader_dead(node)) {
      if (node == 0) return;  // the sequencer is gone: ranks latch by themselves, which is the engine's business
      node = core::Topology::tree_parent(node, options_.fanout);
    }
    if (leader_dead(node)) return;
    if (node == topology_.node_of[index(rank)]) hear_last_words(node, rank);
    nodes_[index(node)].relay->on_message(0, control::RankLost{rank, ErrorCode::rank_lost, "its process ended"});
    pass_on(node);
  }

  // ---------------------------------------------------------------- the sequencer and its log

  control::Sequencer::Time time() const { return control::Sequencer::Time{} + std::chrono::milliseconds(now_); }

  void decide() {
    // What was appended when a message was heard knew nothing of those behind it.
    const std::size_t first_decision = log_.size() + sequencer_->outbox().size();
    sequencer_->decide(time());
    std::vector<control::LogEntry> entries;
    entries.swap(sequencer_->outbox());
    if (sabotage_.decided) sabotage_.decided(entries);
    for (control::LogEntry& entry : entries) {
      control::Bytes bytes;
      control::encode(entry, bytes);
      ++traffic_.entries;
      traffic_.entry_bytes += bytes.size();
      const std::size_t number = log_.size();
      log_.push_back(std::move(entry));
      records_.emplace_back();
      check_entry(number);
      const std::string less_urgent = readiness_.follow(log_[number]);
      if (!less_urgent.empty() && number >= first_decision) {
        violate("entry " + std::to_string(number) + " runs something while '" + less_urgent + "' waits, more urgent");
      }
      if (!violation_.empty()) return;
      send_down(0, number);
    }
    const auto deadline = sequencer_->next_deadline();
    if (deadline == control::Sequencer::Time::max()) return;
    const auto due = static_cast<Tick>(
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - control::Sequencer::Time{}).count());
    if (due < timer_) schedule(timer_ = std::max(due, now_), Event::Kind::timer, 0);
  }

  void send_down(int node, std::size_t entry) {
    Node& n = nodes_[index(node)];
    n.down.push_back(entry);
    n.down_last = std::max(n.down_last, now_ + 1 + draw(options_.link_delay));
    schedule(n.down_last, Event::Kind::down, node);
  }

  void arrive_down(int node) {
    Node& n = nodes_[index(node)];
    const std::size_t number = n.down.front();
    n.down.pop_front();
    if (leader_dead(node)) return;
    control::LogEntry entry = log_[number];
    if (sabotage_.node_reads && !sabotage_.node_reads(node, entry)) return;
    control::Bytes wanted;
    control::Bytes read;
    control::encode(log_[number], wanted);
    control::encode(entry, read);
    if (number != n.log.size() || wanted != read) {
      return violate("node " + std::to_string(node) + " reads another log than the sequencer wrote, at entry " +
                     std::to_string(n.log.size()));
    }
    n.relay->on_log(control::decode_log(read));
    n.log.push_back(number);
    for (const int child : n.children) send_down(child, number);
    for (const int rank : topology_.nodes[index(node)]) {
      if (!ranks_[index(rank)].ended) schedule_tick(rank, 1 + draw(options_.link_delay / 4));
    }
    pass_on(node);
    n.is_cut_off = cuts_off(log_[number], node);
  }

  // ---------------------------------------------------------------- the checker

  void note_submission(int rank, const Key& key, std::uint64_t ordinal, int signature) {
    Ledger& ledger = ledgers_[key];
    ledger.submitted[rank] = ordinal;
    if (ledger.said.size() < ordinal) ledger.said.resize(ordinal);
    ledger.said[ordinal - 1].push_back(signature);
  }

  /// The next submission of this name must have been made by every member; it is consumed.
  bool consume(std::size_t entry, const Key& key, bool must_agree) {
    Ledger& ledger = ledgers_[key];
    const std::string& name = key.name;
    const std::uint64_t ordinal = ++ledger.consumed;
    if (ledger.hopeless) {
      violate("entry " + std::to_string(entry) + " consumes '" + name + "', which cannot be complete");
      return false;
    }
    std::vector<std::int32_t> absent;
    for (const std::int32_t member : members_of(key)) {
      if (ledger.submitted[member] >= ordinal) continue;
      if (key.members.empty() && absent_[key.set].count(member) != 0) {
        absent.push_back(member);
        ledger.submitted[member] = ordinal;
        continue;
      }
      violate("entry " + std::to_string(entry) + " consumes submission " + std::to_string(ordinal) + " of '" + name +
              "', which rank " + std::to_string(member) + " has not made");
      return false;
    }
    if (const auto ended = ended_.find(key.set);
        name == control::kSequence && ended != ended_.end() && ordinal > ended->second) {
      violate("entry " + std::to_string(entry) + " consumes a call behind the end of its sequence");
      return false;
    }
    if (ledger.said.size() < ordinal) {
      violate("entry " + std::to_string(entry) + " consumes '" + name + "', which nobody has submitted");
      return false;
    }
    if (!records_[entry].items.empty() && records_[entry].absent != absent) {
      violate("entry " + std::to_string(entry) + " runs parts with different contributors");
      return false;
    }
    records_[entry].absent = absent;
    const std::vector<int>& said = ledger.said[ordinal - 1];
    const bool agree = std::all_of(said.begin(), said.end(), [&said](int s) { return s == said.front(); });
    if (agree != must_agree) {
      violate("entry " + std::to_string(entry) + (agree ? " fails" : " runs") + " '" + name + "', on which ranks " +
              (agree ? "agree" : "disagree"));
      return false;
    }
    records_[entry].set = key.set;
    records_[entry].members = key.members;
    records_[entry].items.emplace_back(name, ordinal);
    return true;
  }

  const std::vector<std::int32_t>& members_of(const Key& key) {
    return key.members.empty() ? members_[key.set] : key.members;
  }

  void check_batch(std::size_t entry, SetId set, const std::vector<TensorId>& ids) {
    records_[entry].is_batch = true;
    for (const TensorId id : ids) {
      const auto meaning = meaning_.find(id);
      if (meaning == meaning_.end() || meaning->second.set != set) {
        return violate("entry " + std::to_string(entry) + " runs id " + std::to_string(id) + ", which means nothing");
      }
      if (!consume(entry, meaning->second, true)) return;
    }
  }

  void check(std::size_t, const control::Assigned& e) { meaning_.insert_or_assign(e.id, Key(e.set, e.name)); }
  void check(std::size_t n, const control::Evicted& e) {
    if (meaning_.erase(e.id) != 1) violate("entry " + std::to_string(n) + " evicts an id that means nothing");
  }
  void check_last(std::size_t entry, SetId set, std::int32_t last) {
    const std::vector<std::int32_t>& members = members_[set];
    const std::vector<std::int32_t>& absent = records_[entry].absent;
    const auto has = [last](const auto& ranks) { return std::find(ranks.begin(), ranks.end(), last) != ranks.end(); };
    if (last != -1 && (!has(members) || has(absent)))
      violate("entry " + std::to_string(entry) + " has waited for rank " + std::to_string(last));
  }
  void check(std::size_t n, const control::BatchAppended& e) {
    check_batch(n, e.set, e.members);
    check_last(n, e.set, e.last);
  }
  void check(std::size_t n, const control::SequenceAppended& e) {
    records_[n].is_batch = true;
    for (std::uint64_t i = 0; i < e.calls; ++i) {
      if (!consume(n, Key(e.set, control::kSequence), true)) return;
    }
    check_last(n, e.set, e.last);
  }
  void check(std::size_t n, const control::SequenceFailed& e) {
    if (!consume(n, Key(e.set, control::kSequence), e.code != ErrorCode::mismatch)) return;
    if (records_[n].items.front().second != e.call) violate("entry " + std::to_string(n) + " fails another call");
  }
  void check(std::size_t n, const control::SequenceEnded& e) {
    const bool has_departed = std::any_of(members_[e.set].begin(), members_[e.set].end(), [this](std::int32_t member) {
      return ranks_[index(member)].has_said_departure;
    });
    if (!has_departed) violate("entry " + std::to_string(n) + " ends a sequence though nobody has left");
    const auto [ended, is_new] = ended_.emplace(e.set, e.last);
    if (!is_new && e.last > ended->second) violate("entry " + std::to_string(n) + " ends a sequence later than before");
    ended->second = e.last;
  }
  void check(std::size_t, const control::PlanDefined& e) { plans_[e.plan] = e; }
  void check(std::size_t, const control::PlanVoided& e) { plans_.erase(e.plan); }
  void check(std::size_t n, const control::PlannedBatch& e) {
    const auto plan = plans_.find(e.plan);
    if (plan == plans_.end() || e.number >= plan->second.batches.size()) return violate("a batch of no plan");
    check_batch(n, plan->second.set, plan->second.batches[e.number]);
    check_last(n, plan->second.set, e.last);
  }
  void check(std::size_t n, const control::Failed& e) {
    const Key key(e.request.set, e.request.name, e.request.members);
    records_[n].set = key.set;
    records_[n].members = key.members;
    if (e.code == ErrorCode::mismatch) {
      consume(n, key, false);
    } else if (e.code == ErrorCode::rank_lost) {
      ledgers_[key].hopeless = true;
      records_[n].items.emplace_back(key.name, 0);
    } else if (!key.members.empty() && e.code == ErrorCode::expired) {
      expire(n, key);
    } else if (!key.members.empty()) {
      refuse(n, key);
    } else {
      consume(n, key, true);
    }
  }
  /// A deadline has given up a request that names its members.
  void expire(std::size_t entry, const Key& key) {
    Ledger& ledger = ledgers_[key];
    const std::uint64_t ordinal = ledger.expired = ++ledger.consumed;
    const auto has_waited = [&](std::int32_t member) {
      const Handle& handle = ranks_[index(member)].handles[key];
      return handle.pending && handle.alone && handle.ordinal == ordinal && now_ - handle.since >= options_.deadline;
    };
    if (std::none_of(key.members.begin(), key.members.end(), has_waited))
      violate("entry " + std::to_string(entry) + " gives up '" + key.name + "' too early");
    if (ledger.said.size() < ordinal) ledger.said.resize(ordinal);
    records_[entry].items.emplace_back(key.name, ordinal);
  }
  /// A request that names a rank which has joined the world, and has not made it. (The row of sets is never full here.)
  void refuse(std::size_t entry, const Key& key) {
    Ledger& ledger = ledgers_[key];
    const std::uint64_t ordinal = ++ledger.consumed;
    const auto is_away = [&](std::int32_t member) {
      return absent_[core::kGlobalSet].count(member) != 0 && ledger.submitted[member] < ordinal;
    };
    if (std::none_of(key.members.begin(), key.members.end(), is_away)) {
      return violate("entry " + std::to_string(entry) + " refuses '" + key.name + "', whose members are all there");
    }
    for (const std::int32_t member : key.members) {
      if (ledger.submitted[member] >= ordinal) continue;
      ledger.submitted[member] = ordinal;
      Handle& handle = ranks_[index(member)].handles[key];
      handle.key = key;
      handle.ordinal = ordinal;
    }
    if (ledger.said.size() < ordinal) ledger.said.resize(ordinal);
    records_[entry].items.emplace_back(key.name, ordinal);
  }
  void check(std::size_t, const control::Query&) {}
  void check(std::size_t n, const control::Stalled& e) {
    if (e.asked ? options_.asks == 0 : options_.stall_warning == 0) {
      violate("entry " + std::to_string(n) + " tells of a wait that nobody asked about");
    }
    if (e.missing.empty() && e.silent.empty()) violate("entry " + std::to_string(n) + " tells of a wait for nobody");
  }
  void check(std::size_t n, const control::SetAdded& e) {
    std::vector<std::int32_t> members = e.members;
    std::sort(members.begin(), members.end());
    if (!consume(n, Key(core::kGlobalSet, e.name, members), true)) return;
    if (!meaning_.emplace(e.base, Key(e.set, "")).second)
      violate("entry " + std::to_string(n) + " reserves a row twice");
    members_[e.set] = members;
    give_memory(e.set);
  }
  void check(std::size_t n, const control::SetRemoved& e) {
    const std::string what = "entry " + std::to_string(n) + " removes process set " + std::to_string(e.set) + ", ";
    for (const std::int32_t member : members_[e.set]) {
      if (dropped_.count({e.set, member}) != 0 || ranks_[index(member)].has_said_departure) continue;
      return violate(what + "which rank " + std::to_string(member) + " has not dropped");
    }
    for (const auto& [place, members] : running_) {
      if (records_[place.second].set == e.set && records_[place.second].is_batch) {
        return violate(what + "of which entry " + std::to_string(place.second) + " still runs");
      }
    }
    for (auto& [key, ledger] : ledgers_) {
      if (key.set != e.set || ledger.hopeless) continue;
      if (key.name == control::kSequence && ended_.count(e.set) != 0) continue;
      for (const std::int32_t member : members_[e.set]) {
        if (ledger.submitted[member] <= ledger.consumed) continue;
        return violate(what + "of which '" + key.name + "' is in flight on rank " + std::to_string(member));
      }
    }
    for (auto it = meaning_.begin(); it != meaning_.end();) {
      it = it->second.set == e.set ? meaning_.erase(it) : std::next(it);
    }
    removed_.insert(e.set);
    free_memory_.push_back(std::move(memory_[e.set]));
  }
  void check(std::size_t n, const control::RankDeparted& e) {
    if (!e.gone && !ranks_[index(e.rank)].has_said_departure)
      violate("entry " + std::to_string(n) + " says that rank " + std::to_string(e.rank) + " has left, which has not");
    ranks_[index(e.rank)].has_said_departure = true;
  }
  void check(std::size_t n, const control::RankJoined& e) {
    const std::string who = "entry " + std::to_string(n) + ": rank " + std::to_string(e.rank);
    if (joining_.count({e.set, e.rank}) == 0) violate(who + " has not joined");
    if (!absent_[e.set].insert(e.rank).second) violate(who + " has joined already");
    std::vector<std::string> submissions;
    for (auto& [key, ledger] : ledgers_) {
      if (key.set != e.set || !key.members.empty()) continue;
      if (key.name == control::kSequence) {
        if (ranks_[index(e.rank)].sequences[e.set].given != e.sequence)
          violate(who + " joins with another number of calls");
      } else if (ledger.submitted[e.rank] > ledger.consumed) {
        submissions.push_back(key.name);
      }
    }
    if (submissions != e.submissions) violate(who + " joins with other submissions than it has made");
    last_[e.set] = e.rank;
  }
  void check(std::size_t n, const control::JoinEnded& e) {
    const std::string what = "entry " + std::to_string(n) + " ends a join ";
    const bool has_departed = std::any_of(members_[e.set].begin(), members_[e.set].end(), [this](std::int32_t member) {
      return ranks_[index(member)].has_said_departure;
    });
    if (e.code != ErrorCode::ok && !has_departed) violate(what + "though nobody has left");
    if (e.code == ErrorCode::ok && absent_[e.set].size() < members_[e.set].size())
      violate(what + "before all have joined");
    if (e.code == ErrorCode::ok && e.last != last_[e.set]) violate(what + "with another last rank");
    if (e.code == ErrorCode::ok && e.calls != ledgers_[Key(e.set, control::kSequence)].consumed)
      violate(what + "with another number of calls than have been made");
    for (auto& [key, ledger] : ledgers_) {
      if (key.set != e.set || !key.members.empty()) continue;
      records_[n].come_to.emplace(key, ledger.consumed);
      for (const std::int32_t member : members_[e.set]) {
        if (e.code != ErrorCode::ok || ledger.submitted[member] <= ledger.consumed) continue;
        violate(what + "with '" + key.name + "' of rank " + std::to_string(member) + " in flight");
      }
      for (const std::int32_t member : absent_[e.set]) {
        ledger.submitted[member] = std::max(ledger.submitted[member], ledger.consumed);
      }
    }
    if (e.code == ErrorCode::ok) {
      for (const std::int32_t member : members_[e.set]) joining_.erase({e.set, member});
    }
    absent_[e.set].clear();
  }
  void check(std::size_t, const control::Faulted&) { faulted_ = closed_ = true; }
  void check(std::size_t n, const control::Closed&) {
    closed_ = true;
    for (Rank& rank : ranks_) {
      if (rank.has_said_departure) continue;
      rank.is_cut_off = true;
      if (!have_gone_) violate("entry " + std::to_string(n) + " ends the log before all have left");
    }
    for (const auto& [set, ranks] : done_with_) {
      if (ranks < members_[set].size() || removed_.count(set) != 0 || has_any_cut_off(members_[set])) continue;
      violate("entry " + std::to_string(n) + " ends the log, and process set " + std::to_string(set) +
              ", which all members have dropped, is still there");
    }
  }
  void check(std::size_t, const control::Push&) {}

  void check_entry(std::size_t number) {
    if (closed_) return violate("entry " + std::to_string(number) + " follows the end of the log");
    std::visit([this, number](const auto& entry) { check(number, entry); }, log_[number]);
  }

  /// Nothing happens any more.
  void check_end() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const Rank& r = ranks_[index(rank)];
      if (r.dead) continue;
      const std::string who = "rank " + std::to_string(rank);
      if (faulted_) {
        if (r.fault.ok()) violate(who + " has not heard of the fault");
      } else if (r.at < r.program.size() && !r.is_cut_off && !(r.ended && r.program[r.at].kind == Op::Kind::go)) {
        violate(who + " waits for ever, at operation " + std::to_string(r.at) + " of its program ('" +
                r.program[r.at].name + "')");
      } else if (closed_ && !r.ended) {
        violate(who + " has not heard of the end");
      }
    }
    if (!faulted_) check_ledgers();
  }

  /// How many submissions every member has made.
  std::uint64_t least_submitted(const Key& key, Ledger& ledger) {
    std::uint64_t least = ~std::uint64_t{0};
    for (const std::int32_t member : members_of(key)) least = std::min(least, ledger.submitted[member]);
    return least;
  }

  bool has_any_cut_off(const std::vector<std::int32_t>& members) const {
    return std::any_of(members.begin(), members.end(), [this](auto rank) {
      return ranks_[index(rank)].is_cut_off || speaks_through_who_has_gone(rank);
    });
  }

  /// The log may end before the others have heard what the rank said last.
  bool speaks_through_who_has_gone(std::int32_t rank) const {
    for (int node = topology_.node_of[index(rank)]; node > 0;
         node = core::Topology::tree_parent(node, options_.fanout)) {
      const int leader = topology_.leader_of(node);
      if (leader != rank && ranks_[index(leader)].has_gone) return true;
    }
    return false;
  }

  void check_ledgers() {
    for (auto& [key, ledger] : ledgers_) {
      if (ledger.hopeless || has_any_cut_off(members_of(key))) continue;  // its last words may not have been heard
      std::uint64_t least = std::max(ledger.expired, least_submitted(key, ledger));
      if (const auto ended = ended_.find(key.set); key.name == control::kSequence && ended != ended_.end())
        least = std::min(least, ended->second);
      if (ledger.consumed != least) violate("submission " + std::to_string(least) + " of '" + key.name + "' was lost");
    }
    for (const auto& [what, members] : running_) {
      if (ranks_[index(what.first)].ended) continue;
      violate("entry " + std::to_string(what.second) + " never completed on rank " + std::to_string(what.first));
    }
  }

  const Options options_;
  const Sabotage sabotage_;
  std::mt19937_64 random_;
  std::vector<std::shared_ptr<const core::Signature>> signatures_;
  core::Topology topology_;
  std::vector<Rank> ranks_;
  std::vector<Node> nodes_;
  std::unique_ptr<control::Sequencer> sequencer_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  std::uint64_t happened_ = 0;
  Tick now_ = 0;
  Tick timer_ = ~Tick{0};
  std::vector<control::LogEntry> log_;
  std::vector<Record> records_;                                         ///< by entry
  std::map<std::pair<int, std::size_t>, std::vector<NameId>> running_;  ///< by rank and entry
  Traffic traffic_;

  // The checker's own understanding of the log.
  std::map<Key, Ledger> ledgers_;
  std::map<TensorId, Key> meaning_;
  std::map<std::uint32_t, control::PlanDefined> plans_;
  std::map<SetId, std::vector<std::int32_t>> members_;
  bool have_gone_ = false;                   ///< some rank has
  std::map<SetId, std::size_t> done_with_;   ///< how many members have said so before they left
  std::set<std::pair<SetId, int>> dropped_;  ///< by set and rank
  std::set<SetId> removed_;
  std::map<SetId, std::uint64_t> ended_;                    ///< sequences: the last call that may run
  std::set<std::pair<SetId, int>> joining_;                 ///< whose programs have said so, by set and rank
  std::map<SetId, std::set<std::int32_t>> absent_;          ///< by the log
  std::map<SetId, std::int32_t> last_;                      ///< of these, who joined
  std::map<std::pair<SetId, std::uint64_t>, Words> words_;  ///< by set and number of the call
  std::map<SetId, Memory> memory_;
  std::vector<Memory> free_memory_;
  Readiness readiness_;
  std::uint64_t passed_ = 0;
  bool closed_ = false;
  bool faulted_ = false;
  std::string violation_;
};

}  // namespace kolo::simulator
