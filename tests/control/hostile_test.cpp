// SPDX-License-Identifier: Apache-2.0
//
// Messages that decode and make no sense: ids, ranks, sets, plans and counts that this world does not have, at any
// moment. Every machine either goes on or throws an Error that says what it refuses; nothing is read or written out of
// bounds (the address sanitizer runs this, too), and nothing grows beyond the ids that there are.
//
// A small world runs once and what each machine hears is recorded, as bytes. Then each machine hears its recording
// again, with some messages changed: bytes flipped, cut off, said twice, swapped or replaced by something else.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "control/codec.hpp"
#include "control/participant.hpp"
#include "control/ranges.hpp"
#include "control/relay.hpp"
#include "control/sequencer.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::control {
namespace {

constexpr std::uint32_t kCapacity = 12;
constexpr core::TensorId kRow = core::kFirstRow;
constexpr int kSize = 2;

template <class Message>
Bytes bytes_of_message(const Message& message) {
  Bytes bytes;
  encode(message, bytes);
  return bytes;
}

/// What a participant's program does.
struct Submission {
  core::SetId set = 0;
  std::string name;
  std::shared_ptr<const core::Signature> signature;
  enum class What : std::uint8_t { submit, ask_for_set, drop, join } what = What::submit;
};
/// What a machine hears: from a child, from the log, or from its program (which tells the sequencer to decide).
struct Heard {
  enum class From : std::uint8_t { child, log, program } from = From::log;
  std::size_t child = 0;
  Bytes bytes;
  Submission submission;
};
using Recording = std::vector<Heard>;

SequencerOptions options_of_two() {
  SequencerOptions options;
  options.size = kSize;
  options.nodes = 1;
  options.capacity = kCapacity;
  options.fusion_threshold = 100;
  return options;
}

/// Two ranks of one node, whose program names more tensors than there are ids.
class RecordedWorld {
 public:
  RecordedWorld() {
    for (std::uint64_t step = 0; step < 6; ++step) {
      const std::uint64_t first = step < 4 ? 0 : 3;  // other names break the plan, and ids are evicted for them
      for (Participant& rank : ranks_) rank.set_interested(step >= 4);
      for (std::uint64_t i = first; i < first + 5; ++i) submit({0, "n" + std::to_string(i), of_length(4)});
      for (Participant& rank : ranks_) rank.end_step(0);
      run();
    }
    for (int rank = 0; rank < kSize; ++rank) ask_for_set(rank, "set");
    run();
    for (int turn = 0; turn < 3; ++turn) {
      submit({1, "m", of_length(1 + turn / 2)});
      submit({1, "", of_length(2)});
      run();
    }
    submit_on(0, {0, "differs", of_length(1)});
    submit_on(1, {0, "differs", of_length(2)});
    run();
    const SlotId late = submit_on(0, {0, "late", of_length(1)});
    ranks_[0].overdue(late, 1, false);
    run();
    ranks_[0].overdue(late, 2, true);
    for (Participant& rank : ranks_) rank.starved();
    submit_on(1, {0, "late", of_length(1)});
    run();
    for (int rank = 0; rank < kSize; ++rank) drop(rank, 1);
    run();
    submit_on(0, {0, "alone", of_length(1)});
    submit({0, "n0", of_length(4)});
    join(0);
    run();
    submit_on(1, {0, "n1", of_length(4)});
    submit_on(1, {0, "new", of_length(2)});
    run();
    join(1);
    run();
    submit({0, "n1", of_length(4)});
    run();
    ask_for_set(0, "again");
    run();
    for (Participant& rank : ranks_) rank.leave();
    run();
  }

  Recording of_sequencer;
  Recording of_relay;
  Recording of_participant;  ///< rank 1

 private:
  using Signature = std::shared_ptr<const core::Signature>;

  static Signature of_length(std::int64_t elements) {
    core::Signature signature;
    signature.tensors.push_back({DType::float32, Shape{elements}});
    return std::make_shared<const core::Signature>(signature);
  }
  void ask_for_set(int rank, const std::string& name) {
    ranks_[rank].ask_for_set({0, 1}, name);
    note(rank, {0, name, nullptr, Submission::What::ask_for_set});
  }
  void drop(int rank, core::SetId set) {
    ranks_[rank].drop(set);
    note(rank, {set, "", nullptr, Submission::What::drop});
  }
  void join(int rank) {
    ranks_[rank].overdue(ranks_[rank].join(0), 1, false);
    note(rank, {0, "", nullptr, Submission::What::join});
  }
  void note(int rank, const Submission& submission) {
    if (rank == 1) of_participant.push_back({Heard::From::program, 0, {}, submission});
  }

  SlotId submit_on(int rank, const Submission& submission) {
    Participant& participant = ranks_[rank];
    const SlotId slot = participant.open(submission.set, submission.name);
    participant.submit(slot, submission.signature);
    note(rank, submission);
    return slot;
  }
  void submit(const Submission& submission) {
    for (int rank = 0; rank < kSize; ++rank) submit_on(rank, submission);
  }

  void say(std::size_t child, const UpMessage& message) {
    of_relay.push_back({Heard::From::child, child, bytes_of_message(message), {}});
    relay_.on_message(child, message);
  }
  void pass_up() {
    for (const UpMessage& message : std::exchange(relay_.outbox(), {})) {
      of_sequencer.push_back({Heard::From::child, 0, bytes_of_message(message), {}});
      sequencer_.on_message(message, {});
    }
  }
  void publish(const LogEntry& entry) {
    of_relay.push_back({Heard::From::log, 0, bytes_of_message(entry), {}});
    of_participant.push_back({Heard::From::log, 0, bytes_of_message(entry), {}});
    relay_.on_log(entry);
    for (Participant& rank : ranks_) {
      std::vector<Action> actions;
      rank.on_log(entry, actions);
      for (Action& action : actions) {
        if (const auto* batch = std::get_if<RunBatch>(&action)) rank.completed(batch->set);
        if (auto* query = std::get_if<AnswerQuery>(&action)) rank.answer(std::move(query->answer));
      }
    }
  }
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t child = 0; child < kSize; ++child) {
        const Outbox out = std::exchange(ranks_[child].outbox(), Outbox{});
        moved |= !out.empty();
        for (const UpMessage& message : out.messages) say(child, message);
        for (const auto& [id, word] : out.counts) say(child, Counted{id, word});
        if (out.left) say(child, *out.left);
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

  Participant ranks_[kSize] = {{0, kSize, kCapacity}, {1, kSize, kCapacity}};
  Relay relay_{kSize, {{0}, {1}}, kSize, 4, kCapacity};
  Sequencer sequencer_{options_of_two()};
};

const RecordedWorld& recorded() {
  static const RecordedWorld world;
  return world;
}

/// Changes a recording.
class Saboteur {
 public:
  explicit Saboteur(std::uint64_t seed) : random_(seed) {}

  Recording spoil(Recording recording) {
    for (std::uint64_t changes = 1 + random_() % 3; changes > 0; --changes) {
      const std::size_t at = random_() % recording.size();
      const std::size_t other = random_() % recording.size();
      switch (random_() % 6) {
      case 0:
        recording[at].child = random_() % kSize;
        break;
      case 1:
        recording.insert(recording.begin() + static_cast<std::ptrdiff_t>(other), Heard(recording[at]));
        break;
      case 2:
        std::swap(recording[at], recording[other]);
        break;
      case 3:
        replace(recording[at]);
        break;
      default:
        spoil(recording[at].bytes);
      }
    }
    return recording;
  }

 private:
  void spoil(Bytes& bytes) {
    if (bytes.empty()) return;
    const std::size_t at = random_() % bytes.size();
    switch (random_() % 4) {
    case 0:
      bytes[at] = static_cast<std::byte>(random_());
      break;
    case 1:
      bytes[at] ^= static_cast<std::byte>(1U << (random_() % 8));
      break;
    case 2:
      bytes.resize(at);
      break;
    default:
      bytes[at] = static_cast<std::byte>(random_() % 16);
    }
  }

  void replace(Heard& heard) {
    if (heard.from == Heard::From::child) heard.bytes = bytes_of_message(up());
    if (heard.from == Heard::From::log) heard.bytes = bytes_of_message(entry());
  }

  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[random_() % values.size()];
  }
  std::int32_t rank() {
    return one_of<std::int32_t>(
        {0, 1, 1, 2, -1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()});
  }
  core::TensorId id() {
    return one_of<core::TensorId>({0, 1, 2, 3, 4, 5, 8, kCapacity - 1, kCapacity, kRow, kRow + core::kDropped,
                                   kRow + core::kRowIds, core::kEndOfRows, 1U << 30, core::kNoTensor});
  }
  core::SetId set() { return one_of<core::SetId>({0, 0, 0, 1, 1, 2, ~core::SetId{0}}); }
  std::uint64_t count() { return one_of<std::uint64_t>({0, 1, 2, 3, 7, (std::uint64_t{1} << 48) - 1}); }
  std::string name() {
    return one_of<std::string>({"", kSequence, "n0", "n4", "m", "late", "set", std::string(300, 'x')});
  }
  std::uint16_t generation() { return one_of<std::uint16_t>({0, 1, 1, 2, 65535}); }
  std::uint32_t plan() { return one_of<std::uint32_t>({0, 1, 2, 3, ~0U}); }
  std::vector<core::TensorId> ids() {
    std::vector<core::TensorId> list(random_() % 4);
    for (core::TensorId& one : list) one = id();
    return list;
  }
  std::vector<std::int32_t> ranks() {
    std::vector<std::int32_t> list(random_() % 4);
    for (std::int32_t& one : list) one = rank();
    return list;
  }
  /// Of a request: often none, as it is of a set.
  std::vector<std::int32_t> members() { return one_of<std::vector<std::int32_t>>({{}, {}, {0, 1}, {1}, ranks()}); }
  core::Signature signature() {
    core::Signature signature;
    signature.kind = kind();
    signature.ranks = ranks();
    signature.root = rank();
    for (std::uint64_t tensors = random_() % 3; tensors > 0; --tensors) {
      signature.tensors.push_back(
          {DType::float64, Shape{one_of<std::int64_t>({0, 1, 4, std::int64_t{1} << 59})}, random_()});
    }
    return signature;
  }
  std::vector<std::string> names() { return one_of<std::vector<std::string>>({{}, {}, {"n0"}, {"", "m"}, {"m", "m"}}); }
  core::CollectiveKind kind() { return static_cast<core::CollectiveKind>(random_() % core::kCollectiveCount); }
  bool flag() { return random_() % 2 == 0; }
  ErrorCode code() { return static_cast<ErrorCode>(random_() % kErrorCodeCount); }
  double seconds() { return one_of<double>({0, 1, -1, std::numeric_limits<double>::quiet_NaN()}); }

  UpMessage up() {
    switch (random_() % 11) {
    case 10: {
      SequenceGrown grown{set(), count(), {}};
      for (std::uint64_t repeats = random_() % 3; repeats > 0; --repeats) {
        grown.repeats.push_back({static_cast<std::uint32_t>(count()), count()});
        if (flag()) grown.repeats.back().signature = signature();
        if (random_() % 4 == 0)
          grown.repeats.back() = {0, 1, std::nullopt, {{signature(), ranks()}, {signature(), {1}}}};
      }
      return grown;
    }
    case 0:
      return Counted{id(), {generation(), count()}};
    case 1: {
      Declared declared{set(), name(), count(), id(), generation(), {}, members()};
      for (std::uint64_t variants = random_() % 3; variants > 0; --variants) {
        declared.variants.push_back({std::nullopt, ranks()});
        if (random_() % 2 == 0) declared.variants.back().signature = signature();
      }
      return declared;
    }
    case 2:
      return Interest{rank(), plan(), plan(), ids(), count()};
    case 3:
      return Overdue{rank(), set(), name(), count(), seconds(), flag(), flag(), members(), flag(), kind(), flag()};
    case 4:
      return Missing{count(), ranks()};
    case 5:
      return RankLost{rank(), code(), "gone"};
    case 6:
      return Left{rank(), {{set(), count()}}};
    case 7:
      return Starved{rank()};
    case 8: {
      Joined joined{rank(), set(), count(), count(), {}, count(), flag(), count()};
      for (const std::string& name : names()) joined.submissions.push_back({name, count(), id(), signature()});
      return joined;
    }
    default:
      return Answer{count(), rank(), random_() % 2 == 0, Doing::waiting, ranks(), std::nullopt};
    }
  }
  LogEntry entry() {
    switch (random_() % 18) {
    case 0:
      return Assigned{id(), generation(), set(), name(), signature()};
    case 1:
      return Evicted{id(), generation()};
    case 2:
      return BatchAppended{set(), ids()};
    case 3:
      return PlanDefined{plan(), set(), {ids(), ids()}};
    case 4:
      return PlanVoided{plan(), PlanEnd::failed};
    case 5:
      return PlannedBatch{plan(), plan()};
    case 6:
      return Failed{set(), name(), count(), code(), "no", members()};
    case 7:
      return Query{count(), set(), name(), count(), flag(), members(), flag()};
    case 8:
      return Stalled{set(), name(), seconds(), ranks(), members(), flag(), count(), kind(), flag()};
    case 9:
      return SetAdded{set(), id(), generation(), ranks(), name()};
    case 10:
      return SetRemoved{set()};
    case 11:
      return RankLeft{rank()};
    case 12:
      return RankJoined{set(), rank(), names(), flag(), count()};
    case 13:
      return JoinEnded{set(), rank(), count(), code(), "no"};
    case 14:
      return SequenceAppended{set(), count(), {{count(), signature()}}};
    case 15:
      return SequenceAppended{set(), count()};
    case 16:
      return SequenceFailed{set(), count(), code(), "no"};
    case 17:
      return SequenceEnded{set(), count(), code(), "no"};
    default:
      return Faulted{code(), rank(), "no"};
    }
  }

  std::mt19937_64 random_;
};

/// How a machine took it.
struct Outcome {
  int whole = 0;    ///< recordings heard to the end
  int refused = 0;  ///< and not
};

/// `hear(heard)` hears one after another of a changed recording, until one is refused. `make()` begins with a new
/// machine.
template <class Make>
Outcome hear_spoilt(const Recording& recording, const Make& make) {
  Outcome outcome;
  for (std::uint64_t seed = 1; seed <= testing::unless_sanitized(1000U, 400U); ++seed) {
    const auto hear = make();
    try {
      for (const Heard& heard : Saboteur(seed).spoil(recording)) hear(heard);
      ++outcome.whole;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::transport);
      EXPECT_EQ(error.status().message().rfind("a control message is not valid: ", 0), 0U) << error.what();
      ++outcome.refused;
    }
  }
  return outcome;
}

TEST(Hostile, TheRecordingIsWorthSpoiling) {
  std::vector<bool> said(std::variant_size_v<UpMessage>);
  for (const Heard& heard : recorded().of_relay) {
    if (heard.from == Heard::From::child) said[decode_up({heard.bytes.data(), heard.bytes.size()}).index()] = true;
  }
  std::vector<bool> logged(std::variant_size_v<LogEntry>);
  for (const Heard& heard : recorded().of_participant) {
    if (heard.from == Heard::From::log) logged[decode_log({heard.bytes.data(), heard.bytes.size()}).index()] = true;
  }
  EXPECT_GE(std::count(said.begin(), said.end(), true), 7);
  EXPECT_GE(std::count(logged.begin(), logged.end(), true), 14);
}

/// Whatever it hears, what it appends to the log is what a log can hold.
TEST(Hostile, SequencerRefusesOrGoesOn) {
  const Outcome outcome = hear_spoilt(recorded().of_sequencer, [] {
    return [sequencer = std::make_shared<Sequencer>(options_of_two())](const Heard& heard) {
      if (heard.from == Heard::From::program) {
        sequencer->decide({});
      } else {
        sequencer->on_message(decode_up({heard.bytes.data(), heard.bytes.size()}), {});
      }
      for (const LogEntry& entry : std::exchange(sequencer->outbox(), {})) check_ranges(entry, kSize, kCapacity);
    };
  });
  EXPECT_GT(outcome.whole, 50);
  EXPECT_GT(outcome.refused, 50);
}

TEST(Hostile, RelayRefusesOrGoesOn) {
  const Outcome outcome = hear_spoilt(recorded().of_relay, [] {
    const std::vector<std::vector<std::int32_t>> children{{0}, {1}};
    return [relay = std::make_shared<Relay>(kSize, children, kSize, 4, kCapacity)](const Heard& heard) {
      if (heard.from == Heard::From::log) {
        relay->on_log(decode_log({heard.bytes.data(), heard.bytes.size()}));
      } else {
        relay->on_message(heard.child, decode_up({heard.bytes.data(), heard.bytes.size()}));
      }
      relay->outbox().clear();
      ASSERT_LE(relay->id_bound(), kCapacity) << "the leader looks so far along a column of the board";
    };
  });
  EXPECT_GT(outcome.whole, 50);
  EXPECT_GT(outcome.refused, 50);
}

TEST(Hostile, ParticipantRefusesOrGoesOn) {
  const Outcome outcome = hear_spoilt(recorded().of_participant, [] {
    const auto sets = std::make_shared<std::set<core::SetId>>(std::set<core::SetId>{core::kGlobalSet});
    const auto asked = std::make_shared<std::set<SlotId>>();
    const auto joins = std::make_shared<std::set<SlotId>>();
    return [rank = std::make_shared<Participant>(1, kSize, kCapacity), sets, asked, joins](const Heard& heard) {
      if (heard.from == Heard::From::program) {
        const Submission& submission = heard.submission;
        if (sets->count(submission.set) == 0) return;  // the engine asks before it submits
        if (submission.set == core::kGlobalSet && !joins->empty()) return;
        if (submission.what == Submission::What::ask_for_set) {
          if (asked->empty()) asked->insert(rank->ask_for_set({0, 1}, submission.name));
        } else if (submission.what == Submission::What::join) {
          joins->insert(rank->join(submission.set));
        } else if (submission.what == Submission::What::drop) {
          rank->drop(submission.set);
          sets->erase(submission.set);
        } else {
          const SlotId slot = rank->open(submission.set, submission.name);
          if (!rank->in_flight(slot)) rank->submit(slot, submission.signature);
        }
      } else {
        std::vector<Action> actions;
        rank->on_log(decode_log({heard.bytes.data(), heard.bytes.size()}), actions);
        for (const Action& action : actions) {
          if (const auto* batch = std::get_if<RunBatch>(&action)) rank->completed(batch->set);
          if (const auto* forgotten = std::get_if<ForgetSlot>(&action)) {
            asked->erase(forgotten->slot);
            joins->erase(forgotten->slot);
          }
          if (const auto* made = std::get_if<SetMade>(&action)) sets->insert(made->set);
          if (const auto* gone = std::get_if<SetGone>(&action)) sets->erase(gone->set);
        }
      }
      rank->set_interested(true);
      for (const auto& [id, word] : std::exchange(rank->outbox(), Outbox{}).counts) {
        ASSERT_TRUE(id < kCapacity || (id >= kRow && id < core::kEndOfRows)) << "which is written to the board";
      }
    };
  });
  EXPECT_GT(outcome.whole, 50);
  EXPECT_GT(outcome.refused, 50);
}

template <class Check>
std::string refusal_of(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    return error.status().message();
  }
  return "nothing";
}

TEST(Hostile, RefusalsSayWhatIsWrong) {
  const std::string begin = "a control message is not valid: ";
  const auto up = [](const UpMessage& message) {
    return refusal_of([&] { Sequencer(options_of_two()).on_message(message, {}); });
  };
  const auto log = [](const LogEntry& entry) {
    const std::string of_relay = refusal_of([&] { Relay(kSize, {{0}, {1}}, kSize, 4, kCapacity).on_log(entry); });
    std::vector<Action> actions;
    EXPECT_EQ(refusal_of([&] { Participant(1, kSize, kCapacity).on_log(entry, actions); }), of_relay);
    return of_relay;
  };
  EXPECT_EQ(up(Left{2}), begin + "there is no such rank");
  EXPECT_EQ(up(Left{-1}), begin + "there is no such rank");
  EXPECT_EQ(up(Answer{1, 0, true, Doing::waiting, {7}, std::nullopt}), begin + "there is no such rank");
  EXPECT_EQ(up(Missing{1, {1, 0}}), begin + "ranks do not ascend");
  EXPECT_EQ(up(RankLost{0, ErrorCode::ok, ""}), begin + "a rank is lost without an error");
  EXPECT_EQ(up(Declared{0, "x", 1, core::kNoTensor, 0, {}}), begin + "a declaration has no variants");
  EXPECT_EQ(up(Declared{0, "x", 1, core::kNoTensor, 0, {{std::nullopt, {0, 1}}}}),
            begin + "a name without an id was submitted without a signature");
  EXPECT_EQ(up(Declared{0, "x", 1, 0, 0, {{core::Signature(), {0, 1}}}}),
            begin + "an id was declared under another name");
  core::Signature add;
  add.kind = core::CollectiveKind::add_process_set;
  add.ranks = {0, 1};
  EXPECT_EQ(up(Declared{0, "x", 1, core::kNoTensor, 0, {{add, {0, 1}}}}),
            begin + "a process set was asked for without its members");
  EXPECT_EQ(up(Declared{0, "x", 2, core::kNoTensor, 0, {{add, {0, 1}}}, {0, 1}}),
            begin + "a request that names its members is no round of a name");
  EXPECT_EQ(up(Declared{0, "x", 1, core::kNoTensor, 0, {{add, {0, 1}}}, {1}}),
            begin + "a rank makes a request that does not name it");
  EXPECT_EQ(up(Declared{0, "x", 1, core::kNoTensor, 0, {{add, {1}}}, {1}}),
            begin + "a request names other members than its process set has");
  EXPECT_EQ(up(Overdue{0, 0, "x", 1, 1, false, false, {1}}),
            begin + "a rank waits for a request that does not name it");
  EXPECT_EQ(up(Counted{core::kCompleted, {0, 1}}), begin + "more batches are complete than there were");
  EXPECT_EQ(up(Counted{core::kUnnamed, {0, 1}}), begin + "a tensor was counted before it had a signature");
  EXPECT_EQ(refusal_of([] {
              Relay(kSize, {{0}, {1}}, kSize, 4, kCapacity)
                  .on_message(0, Declared{0, "x", 1, core::kNoTensor, 0, {{core::Signature(), {1}}}});
            }),
            begin + "a rank submits for another one");
  EXPECT_EQ(log(Assigned{kCapacity, 1, 0, "x", {}}), begin + "there is no such id");
  EXPECT_EQ(log(SetAdded{1, 4, 1, {0, 1}, "x"}), begin + "there is no such row of ids");
  EXPECT_EQ(log(SetAdded{1, kRow + 1, 1, {0, 1}, "x"}), begin + "there is no such row of ids");
  EXPECT_EQ(log(SetAdded{1, core::kEndOfRows, 1, {0, 1}, "x"}), begin + "there is no such row of ids");
  EXPECT_EQ(log(SetAdded{1, kRow, 1, {2, 0}, "x"}), begin + "there is no such rank");
  EXPECT_EQ(log(SetAdded{1, kRow, 1, {1, 1}, "x"}), begin + "ranks do not ascend");
  EXPECT_EQ(log(SetRemoved{0}), begin + "the world's process set was removed");
  EXPECT_EQ(log(SetRemoved{1}), begin + "there is no such process set");
  EXPECT_EQ(log(Query{1, 0, "", 1, false, {1, 0}}), begin + "ranks do not ascend");
  EXPECT_EQ(log(Failed{1, "", 1, ErrorCode::mismatch, "no", {0}}),
            begin + "a request that names its members is not the world's");
  EXPECT_EQ(log(BatchAppended{3, {1}}), begin + "there is no such process set");
  EXPECT_EQ(log(PlannedBatch{3, 1}), begin + "there is no such plan");
  EXPECT_EQ(log(Evicted{7, 1}), begin + "an id was evicted that means nothing");
  EXPECT_EQ(log(RankLeft{2}), begin + "there is no such rank");
  EXPECT_EQ(up(Joined{2, 0, 0, 0, {}}), begin + "there is no such rank");
  EXPECT_EQ(up(Joined{0, 0, 0, 0, {{"b", 1, 0, {}}, {"a", 1, 0, {}}}}), begin + "names do not ascend");
  EXPECT_EQ(up(Overdue{0, 0, "x", 1, 1, false, false, {}, true}), begin + "a join has a name");
  EXPECT_EQ(refusal_of([] {
              Sequencer sequencer(options_of_two());
              sequencer.on_message(Joined{0, 0, 0, 0, {}}, {});
              sequencer.on_message(Joined{0, 0, 0, 0, {}}, {});
            }),
            begin + "a rank joins that has joined");
  EXPECT_EQ(refusal_of([] {
              Relay(kSize, {{0}, {1}}, kSize, 4, kCapacity).on_message(0, Joined{1, 0, 0, 0, {}});
            }),
            begin + "a rank joins for another one");
  EXPECT_EQ(log(Query{1, 0, "x", 1, true, {}, true}), begin + "a join has a name");
  EXPECT_EQ(log(RankJoined{0, 2, {}}), begin + "there is no such rank");
  EXPECT_EQ(log(RankJoined{0, 0, {"x", "x"}}), begin + "names do not ascend");
  EXPECT_EQ(log(RankJoined{3, 0, {}}), begin + "there is no such process set");
  EXPECT_EQ(log(JoinEnded{0, 2, 0, ErrorCode::ok, ""}), begin + "there is no such rank");
  EXPECT_EQ(log(JoinEnded{0, 1, 0, ErrorCode::timeout, ""}), begin + "a join that failed has a last rank");
  const auto read = [](const std::vector<LogEntry>& entries) {
    return refusal_of([&] {
      Participant participant(1, kSize, kCapacity);
      std::vector<Action> actions;
      for (const LogEntry& entry : entries) participant.on_log(entry, actions);
    });
  };
  EXPECT_EQ(read({RankJoined{0, 1, {}}}), begin + "this rank has joined with other submissions than it has made");
  EXPECT_EQ(read({RankJoined{0, 0, {}}, RankJoined{0, 0, {}}}), begin + "a rank has joined that cannot");
  EXPECT_EQ(read({RankJoined{0, 0, {}}, JoinEnded{0, 0, 0, ErrorCode::ok, ""}}),
            begin + "a join ended that not all members have made");
  EXPECT_EQ(read({RankJoined{0, 0, {}}, PlanDefined{1, 0, {}}}), begin + "a plan was defined while a rank was absent");
}

}  // namespace
}  // namespace kolo::control
