// SPDX-License-Identifier: Apache-2.0
//
// Messages that decode and make no sense: ids, ranks, sets, plans and counts that this world does not have, at any
// moment. Every machine either goes on or throws an Error that says what it refuses; nothing is read or written out of
// bounds (the address sanitizer runs this, too), and nothing grows beyond the ids that there are.
//
// Each machine hears a recording (recording.hpp) again, with some messages changed: bytes flipped, cut off, said twice,
// swapped or replaced by something else. tests/fuzz changes them by what a fuzzer has learned.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "recording.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::control {
namespace {

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
        recording[at].child = random_() % kRecordedSize;
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
    if (heard.from == Heard::From::child) heard.bytes = encoded(up());
    if (heard.from == Heard::From::log) heard.bytes = encoded(entry());
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
    return one_of<core::TensorId>({0, 1, 2, 3, 4, 5, 8, kRecordedCapacity - 1, kRecordedCapacity, core::kFirstRow,
                                   core::kFirstRow + core::kDropped, core::kFirstRow + core::kReservedIds,
                                   core::kEndOfRows, 1U << 30, core::kNoTensor});
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
      return Counted{id(), {generation(), count()}, rank()};
    case 1: {
      Declared declared{set(), name(), count(), id(), generation(), {}, members()};
      for (std::uint64_t variants = random_() % 3; variants > 0; --variants) {
        declared.variants.push_back({std::nullopt, ranks()});
        if (random_() % 2 == 0) declared.variants.back().signature = signature();
      }
      return declared;
    }
    case 2:
      return PartAwaited{rank(), plan(), plan(), ids(), count()};
    case 3:
      return Overdue{rank(), {set(), name(), count(), members(), flag()}, seconds(), flag(), flag(), kind(), flag()};
    case 4:
    case 5:
      return RankLost{rank(), code(), "gone"};
    case 6:
      return Departed{rank(), {{set(), count()}}};
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
      return BatchAppended{set(), ids(), rank()};
    case 3:
      return PlanDefined{plan(), set(), {ids(), ids()}};
    case 4:
      return PlanVoided{plan(), PlanEnd::failed};
    case 5:
      return PlannedBatch{plan(), plan(), rank()};
    case 6:
      return Failed{{set(), name(), count(), members()}, code(), "no"};
    case 7:
      return Query{count(), {set(), name(), count(), members(), flag()}};
    case 8:
      return Stalled{{set(), name(), count(), members(), flag()}, seconds(), ranks(), kind(), flag()};
    case 9:
      return SetAdded{set(), id(), generation(), ranks(), name()};
    case 10:
      return SetRemoved{set()};
    case 11:
      return RankDeparted{rank()};
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

/// A new machine for each changed recording, which hears it until something is refused.
template <class Machine>
Outcome hear_spoilt(const Recording& recording) {
  Outcome outcome;
  for (std::uint64_t seed = 1; seed <= testing::unless_sanitized(1000U, 400U); ++seed) {
    Machine machine;
    try {
      for (const Heard& heard : Saboteur(seed).spoil(recording)) machine.hear(heard);
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
    if (heard.from == Heard::From::child) said[decode_up(view_of(heard.bytes)).index()] = true;
  }
  std::vector<bool> logged(std::variant_size_v<LogEntry>);
  for (const Heard& heard : recorded().of_participant) {
    if (heard.from == Heard::From::log) logged[decode_log(view_of(heard.bytes)).index()] = true;
  }
  EXPECT_GE(std::count(said.begin(), said.end(), true), 7);
  EXPECT_GE(std::count(logged.begin(), logged.end(), true), 14);
}

TEST(Hostile, SequencerRefusesOrGoesOn) {
  const Outcome outcome = hear_spoilt<HearingSequencer>(recorded().of_sequencer);
  EXPECT_GT(outcome.whole, 50);
  EXPECT_GT(outcome.refused, 50);
}

TEST(Hostile, RelayRefusesOrGoesOn) {
  const Outcome outcome = hear_spoilt<HearingRelay>(recorded().of_relay);
  EXPECT_GT(outcome.whole, 50);
  EXPECT_GT(outcome.refused, 50);
}

TEST(Hostile, ParticipantRefusesOrGoesOn) {
  const Outcome outcome = hear_spoilt<HearingParticipant>(recorded().of_participant);
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
  const auto up = [&](const UpMessage& message, const char* refusal) {
    SCOPED_TRACE(refusal);
    EXPECT_EQ(refusal_of([&] { Sequencer(options_of_two()).on_message(message, {}); }), begin + refusal);
  };
  const auto log = [&](const LogEntry& entry, const char* refusal) {
    SCOPED_TRACE(refusal);
    EXPECT_EQ(refusal_of([&] {
                Relay(kRecordedSize, {{0}, {1}}, kRecordedSize, 4, kRecordedCapacity).on_log(entry);
              }),
              begin + refusal);
    std::vector<Action> actions;
    EXPECT_EQ(refusal_of([&] { Participant(1, kRecordedSize, kRecordedCapacity).on_log(entry, actions); }),
              begin + refusal);
  };
  up(Departed{2}, "there is no such rank");
  up(Deserted{0, 2}, "there is no such rank");
  up(Deserted{1, 1}, "a rank was deserted by itself");
  up(Departed{-1}, "there is no such rank");
  up(Answer{1, 0, true, Doing::waiting, {7}, std::nullopt}, "there is no such rank");
  up(RankLost{0, ErrorCode::ok, ""}, "a rank is lost without an error");
  up(Declared{0, "x", 1, core::kNoTensor, 0, {}}, "a declaration has no variants");
  up(Declared{0, "x", 1, core::kNoTensor, 0, {{std::nullopt, {0, 1}}}},
     "a name without an id was submitted without a signature");
  up(Declared{0, "x", 1, 0, 0, {{core::Signature(), {0, 1}}}}, "an id was declared under another name");
  core::Signature add;
  add.kind = core::CollectiveKind::add_process_set;
  add.ranks = {0, 1};
  up(Declared{0, "x", 1, core::kNoTensor, 0, {{add, {0, 1}}}}, "a process set was asked for without its members");
  up(Declared{0, "x", 0, core::kNoTensor, 0, {{add, {0, 1}}}, {0, 1}},
     "a request that names its members is no round of a name");
  up(Declared{0, "x", 1, core::kNoTensor, 0, {{add, {0, 1}}}, {1}}, "a rank makes a request that does not name it");
  up(Declared{0, "x", 1, core::kNoTensor, 0, {{add, {1}}}, {1}},
     "a request names other members than its process set has");
  up(Overdue{0, {0, "x", 1, {1}}, 1}, "a rank waits for a request that does not name it");
  up(Overdue{0, {0, "x", 1}, 1, true, false, core::CollectiveKind::allreduce, false, true},
     "a deadline ends a request alone that does not name its members");
  up(Counted{0, {0, 1}, 2}, "there is no such rank");
  up(Declared{0, "x", 1, core::kNoTensor, 0, {{core::Signature(), {0, 1}}}, {}, -2}, "there is no such rank");
  up(SequenceGrown{0, 1, {{0, 1, core::Signature()}}, 2}, "there is no such rank");
  up(Counted{core::kCompleted, {0, 1}}, "more batches are complete than there were");
  up(Counted{core::kDropped, {0, 1}}, "a rank drops the world");
  up(Declared{0, "", 1, core::kNoTensor, 0, {{core::Signature(), {0}}}}, "a tensor has no name");
  EXPECT_EQ(refusal_of([] {
              Relay(kRecordedSize, {{0}, {1}}, kRecordedSize, 4, kRecordedCapacity)
                  .on_message(0, Declared{0, "x", 1, core::kNoTensor, 0, {{core::Signature(), {1}}}});
            }),
            begin + "a rank submits for another one");
  log(Assigned{kRecordedCapacity, 1, 0, "x", {}}, "there is no such id");
  log(Assigned{core::kSteps, 1, 0, "x", {}}, "there is no such id");
  log(Assigned{core::kReservedIds, 1, 0, "", {}}, "a tensor has no name");
  log(SetAdded{1, 4, 1, {0, 1}, "x"}, "there is no such row of ids");
  log(SetAdded{1, core::kFirstRow + 1, 1, {0, 1}, "x"}, "there is no such row of ids");
  log(SetAdded{1, core::kEndOfRows, 1, {0, 1}, "x"}, "there is no such row of ids");
  log(SetAdded{1, core::kFirstRow, 1, {2, 0}, "x"}, "there is no such rank");
  log(SetAdded{1, core::kFirstRow, 1, {1, 1}, "x"}, "ranks do not ascend");
  log(SetRemoved{0}, "the world's process set was removed");
  log(SetRemoved{1}, "there is no such process set");
  log(Query{1, {0, "", 1, {1, 0}}}, "ranks do not ascend");
  log(Failed{{1, "", 1, {0}}, ErrorCode::mismatch, "no"}, "a request that names its members is not the world's");
  log(BatchAppended{3, {core::kReservedIds}}, "there is no such process set");
  log(PlannedBatch{3, 1}, "there is no such plan");
  log(PlannedBatch{3, 1, 2}, "there is no such rank");
  log(BatchAppended{0, {core::kReservedIds}, -2}, "there is no such rank");
  log(SequenceAppended{0, 1, {}, 2}, "there is no such rank");
  log(Evicted{7, 1}, "an id was evicted that means nothing");
  log(RankDeparted{1, 2}, "there is no such rank");
  log(RankDeparted{1, 1}, "a rank has left because of itself");
  log(RankDeparted{2}, "there is no such rank");
  up(Joined{2, 0, 0, 0, {}}, "there is no such rank");
  up(Joined{0, 0, 0, 0, {{"b", 1, 0, {}}, {"a", 1, 0, {}}}}, "names do not ascend");
  up(Overdue{0, {0, "x", 1, {}, true}, 1}, "a join has a name");
  EXPECT_EQ(refusal_of([] {
              Sequencer sequencer(options_of_two());
              sequencer.on_message(Joined{0, 0, 0, 0, {}}, {});
              sequencer.on_message(Joined{0, 0, 0, 0, {}}, {});
            }),
            begin + "a rank joins that has joined");
  EXPECT_EQ(
      refusal_of([] {
        Relay(kRecordedSize, {{0}, {1}}, kRecordedSize, 4, kRecordedCapacity).on_message(0, Joined{1, 0, 0, 0, {}});
      }),
      begin + "a rank joins for another one");
  log(Query{1, {0, "x", 1, {}, true}}, "a join has a name");
  log(RankJoined{0, 2, {}}, "there is no such rank");
  log(RankJoined{0, 0, {"x", "x"}}, "names do not ascend");
  log(RankJoined{3, 0, {}}, "there is no such process set");
  log(JoinEnded{0, 2, 0, ErrorCode::ok, ""}, "there is no such rank");
  log(JoinEnded{0, 1, 0, ErrorCode::timeout, ""}, "a join that failed has a last rank");
  const auto read = [](const std::vector<LogEntry>& entries) {
    return refusal_of([&] {
      Participant participant(1, kRecordedSize, kRecordedCapacity);
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
