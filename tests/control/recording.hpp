// SPDX-License-Identifier: Apache-2.0
//
// A small world that runs once, and what each of its machines hears, as bytes; and machines that hear such a recording
// again, changed by a test or a fuzzer. Whatever they hear, they go on or throw Error (transport), and say nothing that
// their caller cannot use: that is a std::logic_error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "control/codec.hpp"
#include "control/participant.hpp"
#include "control/ranges.hpp"
#include "control/relay.hpp"
#include "control/sequencer.hpp"
#include "tests/support/control_samples.hpp"

namespace kolo::control {

inline constexpr std::uint32_t kRecordedCapacity = 12;
inline constexpr int kRecordedSize = 2;

/// What a participant's program does.
struct Submission {
  enum class What : std::uint8_t { submit, call, ask_for_set, drop, join };
  What what = What::submit;
  core::SetId set = 0;
  std::string name;
  std::int64_t elements = 1;
};
/// What a machine hears: from a child, from the log, or from its program (which tells the sequencer to decide).
struct Heard {
  enum class From : std::uint8_t { child, log, program };
  From from = From::log;
  std::size_t child = 0;
  Bytes bytes;
  Submission submission;
};
using Recording = std::vector<Heard>;

inline std::shared_ptr<const core::Signature> signature_of_length(std::int64_t elements) {
  core::Signature signature;
  signature.tensors.push_back({DType::float32, Shape{elements}});
  return std::make_shared<const core::Signature>(signature);
}

inline SequencerOptions options_of_two() {
  SequencerOptions options;
  options.size = kRecordedSize;
  options.capacity = kRecordedCapacity;
  options.fusion_threshold = 100;
  return options;
}

/// Two ranks of one node, whose program names more tensors than there are ids.
class RecordedWorld {
 public:
  RecordedWorld() {
    train();
    use_a_set();
    disagree_and_wait();
    join_and_leave();
  }

  Recording of_sequencer;
  Recording of_relay;
  Recording of_participant;  ///< rank 1

 private:
  using What = Submission::What;

  void train() {
    for (std::uint64_t step = 0; step < 6; ++step) {
      const std::uint64_t first = step < 4 ? 0 : 3;  // other names break the plan, and ids are evicted for them
      for (Participant& rank : ranks_) rank.set_awaiting(step >= 4);
      for (std::uint64_t i = first; i < first + 5; ++i) submit({What::submit, 0, "n" + std::to_string(i), 4});
      for (Participant& rank : ranks_) rank.end_step(0);
      run();
    }
  }
  void use_a_set() {
    for (int rank = 0; rank < kRecordedSize; ++rank) ask_for_set(rank, "set");
    run();
    for (int turn = 0; turn < 3; ++turn) {
      submit({What::submit, 1, "m", 1 + turn / 2});
      call({What::call, 1, "", 2});
      run();
    }
  }
  void disagree_and_wait() {
    submit_on(0, {What::submit, 0, "differs", 1});
    submit_on(1, {What::submit, 0, "differs", 2});
    run();
    const NameId late = submit_on(0, {What::submit, 0, "late", 1});
    ranks_[0].overdue(late, 1, false);
    run();
    ranks_[0].overdue(late, 2, true);
    for (Participant& rank : ranks_) rank.starved();
    submit_on(1, {What::submit, 0, "late", 1});
    run();
    for (int rank = 0; rank < kRecordedSize; ++rank) drop(rank, 1);
    run();
  }
  void join_and_leave() {
    submit_on(0, {What::submit, 0, "alone", 1});
    submit({What::submit, 0, "n0", 4});
    join(0);
    run();
    submit_on(1, {What::submit, 0, "n1", 4});
    submit_on(1, {What::submit, 0, "new", 2});
    run();
    join(1);
    run();
    submit({What::submit, 0, "n1", 4});
    run();
    ask_for_set(0, "again");
    run();
    for (Participant& rank : ranks_) rank.leave();
    run();
  }

  void ask_for_set(int rank, const std::string& name) {
    ranks_[rank].ask_for_set({0, 1}, name);
    note(rank, {What::ask_for_set, 0, name});
  }
  void drop(int rank, core::SetId set) {
    ranks_[rank].drop(set);
    note(rank, {What::drop, set, ""});
  }
  void join(int rank) {
    ranks_[rank].overdue(ranks_[rank].join(0), 1, false);
    note(rank, {What::join, 0, ""});
  }
  void note(int rank, const Submission& submission) {
    if (rank == 1) of_participant.push_back({Heard::From::program, 0, {}, submission});
  }

  NameId submit_on(int rank, const Submission& submission) {
    Participant& participant = ranks_[rank];
    const NameId name_id = participant.open(submission.set, submission.name);
    participant.submit(name_id, signature_of_length(submission.elements));
    note(rank, submission);
    return name_id;
  }
  void submit(const Submission& submission) {
    for (int rank = 0; rank < kRecordedSize; ++rank) submit_on(rank, submission);
  }

  void call(const Submission& submission) {
    ++calls_;
    for (int rank = 0; rank < kRecordedSize; ++rank) {
      ranks_[rank].call(submission.set, signature_of_length(submission.elements), calls_);
      note(rank, submission);
    }
  }

  void say(std::size_t child, const UpMessage& message) {
    of_relay.push_back({Heard::From::child, child, encoded(message), {}});
    relay_.on_message(child, message);
  }
  void pass_up() {
    for (const UpMessage& message : std::exchange(relay_.outbox(), {})) {
      of_sequencer.push_back({Heard::From::child, 0, encoded(message), {}});
      sequencer_.on_message(message, {});
    }
  }
  void publish(const LogEntry& entry) {
    of_relay.push_back({Heard::From::log, 0, encoded(entry), {}});
    of_participant.push_back({Heard::From::log, 0, encoded(entry), {}});
    relay_.on_log(entry);
    for (Participant& rank : ranks_) {
      std::vector<Action> actions;
      rank.on_log(entry, actions);
      for (Action& action : actions) {
        if (const auto* batch = std::get_if<RunBatch>(&action)) rank.completed(batch->set);
        if (const auto* batch = std::get_if<RunCalls>(&action)) rank.completed(batch->set);
        if (auto* query = std::get_if<AnswerQuery>(&action)) rank.answer(std::move(query->answer));
      }
    }
  }
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t child = 0; child < kRecordedSize; ++child) {
        const Outbox out = std::exchange(ranks_[child].outbox(), Outbox{});
        moved |= !out.empty();
        for (const UpMessage& message : out.messages) say(child, message);
        for (const auto& [id, word] : out.counts) say(child, Counted{id, word});
        if (out.departed) say(child, *out.departed);
      }
      pass_up();
      of_sequencer.push_back({Heard::From::program, 0, {}, {}});
      sequencer_.decide({});
      for (const LogEntry& entry : std::exchange(sequencer_.outbox(), {})) {
        moved = true;
        publish(entry);
      }
    }
  }

  core::Round calls_ = 0;  ///< in the group
  Participant ranks_[kRecordedSize] = {{0, kRecordedSize, kRecordedCapacity}, {1, kRecordedSize, kRecordedCapacity}};
  Relay relay_{kRecordedSize, {{0}, {1}}, kRecordedSize, 4, kRecordedCapacity};
  Sequencer sequencer_{options_of_two()};
};

inline const RecordedWorld& recorded() {
  static const RecordedWorld world;
  return world;
}

/// What it appends to the log is what a log can hold.
class HearingSequencer {
 public:
  void hear(const Heard& heard) {
    if (heard.from == Heard::From::program) {
      sequencer_.decide({});
    } else {
      sequencer_.on_message(decode_up(view_of(heard.bytes)), {});
    }
    for (const LogEntry& entry : std::exchange(sequencer_.outbox(), {})) {
      check_ranges(entry, kRecordedSize, kRecordedCapacity);
    }
  }

 private:
  Sequencer sequencer_{options_of_two()};
};

/// The leader looks as far along a column of the board as it says.
class HearingRelay {
 public:
  void hear(const Heard& heard) {
    if (heard.from == Heard::From::log) {
      relay_.on_log(decode_log(view_of(heard.bytes)));
    } else {
      relay_.on_message(heard.child, decode_up(view_of(heard.bytes)));
    }
    relay_.outbox().clear();
    if (relay_.id_bound() > kRecordedCapacity) throw std::logic_error("ids lie beyond the board");
  }

 private:
  Relay relay_{kRecordedSize, {{0}, {1}}, kRecordedSize, 4, kRecordedCapacity};
};

/// Rank 1. Its program submits what the engine would let it submit. What it counts is written to the board.
class HearingParticipant {
 public:
  void hear(const Heard& heard) {
    if (heard.from == Heard::From::program) {
      submit(heard.submission);
    } else {
      std::vector<Action> actions;
      rank_.on_log(decode_log(view_of(heard.bytes)), actions);
      for (const Action& action : actions) note(action);
    }
    rank_.set_awaiting(true);
    for (const auto& [id, word] : std::exchange(rank_.outbox(), Outbox{}).counts) {
      const bool is_in_row = id >= core::kFirstRow && id < core::kEndOfRows;
      if (id >= kRecordedCapacity && !is_in_row) throw std::logic_error("a count lies beyond the board");
    }
  }

 private:
  void submit(const Submission& submission) {
    const bool asks = submission.what == Submission::What::ask_for_set;
    const core::SetId set = asks ? core::kGlobalSet : submission.set;
    const bool has_joined =
        std::any_of(joins_.begin(), joins_.end(), [set](const auto& join) { return join.second == set; });
    if (sets_.count(set) == 0 || has_joined) return;
    switch (submission.what) {
    case Submission::What::ask_for_set:
      if (!asked_.empty() || rank_.take_failure({0, 1}, submission.name)) return;
      asked_.insert(rank_.ask_for_set({0, 1}, submission.name));
      return;
    case Submission::What::join:
      joins_[rank_.join(set)] = set;
      return;
    case Submission::What::drop:
      if (set == core::kGlobalSet) return;
      rank_.drop(set);
      sets_.erase(set);
      calls_.erase(set);
      return;
    case Submission::What::call:
      rank_.call(set, signature_of_length(submission.elements), ++calls_[set]);
      return;
    case Submission::What::submit:
      break;
    }
    const NameId name_id = rank_.open(submission.set, submission.name);
    if (!rank_.in_flight(name_id)) rank_.submit(name_id, signature_of_length(submission.elements));
  }
  void note(const Action& action) {
    if (const auto* batch = std::get_if<RunBatch>(&action)) rank_.completed(batch->set);
    if (const auto* batch = std::get_if<RunCalls>(&action)) rank_.completed(batch->set);
    if (const auto* forgotten = std::get_if<ForgetName>(&action)) {
      asked_.erase(forgotten->name);
      joins_.erase(forgotten->name);
    }
    if (const auto* join = std::get_if<JoinDone>(&action)) calls_[join->set] = std::max(calls_[join->set], join->calls);
    if (const auto* made = std::get_if<SetMade>(&action)) sets_.insert(made->set);
    if (const auto* gone = std::get_if<SetGone>(&action)) sets_.erase(gone->set);
  }

  Participant rank_{1, kRecordedSize, kRecordedCapacity};
  std::set<core::SetId> sets_{core::kGlobalSet};
  std::set<NameId> asked_;
  std::map<NameId, core::SetId> joins_;
  std::map<core::SetId, core::Round> calls_;  ///< the last one made
};

}  // namespace kolo::control
