// SPDX-License-Identifier: Apache-2.0
//
// What each machine does when a rank joins (control/messages.hpp, "Joining"). The simulator has the worlds.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "control/participant.hpp"
#include "control/relay.hpp"
#include "control/sequencer.hpp"
#include "tests/control/only.hpp"

namespace kolo::control {
namespace {

using core::kNoTensor;
using Ranks = std::vector<std::int32_t>;
using Names = std::vector<std::string>;

Declared declared(const std::string& name, core::Round round, Ranks ranks, std::int64_t elements = 1) {
  return {0, name, round, kNoTensor, 0, {{signature_of(elements), std::move(ranks)}}};
}

// ---------------------------------------------------------------- relay

/// Ranks 0 and 1 are of this node, 2 and 3 below a child node.
class JoinRelay : public testing::Test {
 protected:
  std::vector<UpMessage> take() { return std::exchange(relay.outbox(), {}); }
  void join(std::size_t child, std::int32_t rank) { relay.on_message(child, Joined{rank, 0, 0, 0, {}}); }

  Relay relay{4, {{0}, {1}, {2, 3}}, 2, 2};
};

TEST_F(JoinRelay, WaitsNoMoreForARankThatHasJoined) {
  relay.on_log(Assigned{3, 1, 0, "x", signature_of(1)});
  relay.on_count(0, 3, {1, 1});
  relay.on_message(2, Counted{3, {1, 1}});
  EXPECT_TRUE(take().empty());
  join(1, 1);
  auto up = take();
  ASSERT_EQ(up.size(), 2U);
  EXPECT_EQ(std::get<Joined>(up[0]).rank, 1) << "before what is complete by that";
  EXPECT_EQ(std::get<Counted>(up[1]).word, (CountWord{1, 1}));
  EXPECT_EQ(std::get<Counted>(up[1]).last, -1) << "it waited for a rank that had not submitted";
  relay.on_count(1, 3, {1, 1});
  EXPECT_TRUE(take().empty()) << "it said so before it joined";
  relay.on_count(0, 3, {1, 2});
  relay.on_message(2, Counted{3, {1, 2}});
  EXPECT_EQ(only<Counted>(take()).word, (CountWord{1, 2}));
}

TEST_F(JoinRelay, WaitsForAChildUntilAllBelowItHaveJoined) {
  relay.on_message(0, declared("x", 1, {0}));
  relay.on_message(1, declared("x", 1, {1}));
  join(2, 3);
  auto up = take();
  ASSERT_EQ(up.size(), 1U);
  EXPECT_EQ(std::get<Joined>(up[0]).rank, 3);
  join(2, 2);
  up = take();
  ASSERT_EQ(up.size(), 2U);
  EXPECT_EQ(std::get<Declared>(up[1]).variants.at(0).ranks, (Ranks{0, 1}));
}

TEST_F(JoinRelay, WaitsForItsCompletedBatches) {
  join(1, 1);
  relay.on_log(BatchAppended{0, {3}});
  take();
  relay.on_count(0, core::kCompleted, {0, 1});
  relay.on_message(2, Counted{core::kCompleted, {0, 1}});
  EXPECT_TRUE(take().empty());
  relay.on_count(1, core::kCompleted, {0, 1});
  EXPECT_EQ(take().size(), 1U);
  relay.on_count(0, core::kSteps, {0, 1});
  relay.on_message(2, Counted{core::kSteps, {0, 1}});
  EXPECT_EQ(take().size(), 1U) << "but not for its steps";
}

TEST_F(JoinRelay, HasItSubmittedWhatIsAskedAbout) {
  join(1, 1);
  take();
  for (const std::int32_t rank : {0, 1}) relay.on_log(RankDeparted{rank});
  const auto missing = [this](const Request& request) {
    relay.on_log(Query{1, request, 2});
    Ranks ranks;
    for (const UpMessage& message : take()) {
      if (const auto& answer = std::get<Answer>(message); !answer.submitted) ranks.push_back(answer.rank);
    }
    return ranks;
  };
  EXPECT_EQ(missing({0, "x", 1}), Ranks{0});
  EXPECT_EQ(missing({0, "pair", 1, {0, 1}}), (Ranks{0, 1})) << "a process set it must ask for itself";
}

TEST_F(JoinRelay, BeginsAnewWhenTheJoinHasEnded) {
  relay.on_message(0, declared("x", 1, {0}));
  join(0, 0);
  join(1, 1);
  join(2, 2);
  join(2, 3);
  EXPECT_EQ(take().size(), 4U) << "nobody is there to say anything";
  relay.on_log(JoinEnded{0, 3, 0, ErrorCode::ok, ""});
  EXPECT_TRUE(take().empty());
  relay.on_message(1, declared("x", 1, {1}, 2));
  relay.on_message(2, declared("x", 1, {2, 3}, 2));
  EXPECT_TRUE(take().empty()) << "what rank 0 said before it joined is over";
  relay.on_message(0, declared("x", 1, {0}, 2));
  EXPECT_EQ(only<Declared>(take()).variants.size(), 1U);
}

// ---------------------------------------------------------------- sequencer

class JoinSequencer : public testing::Test {
 protected:
  static SequencerOptions options() {
    SequencerOptions options;
    options.size = 3;
    options.capacity = 5;  // for two names
    return options;
  }
  std::vector<LogEntry> hear(const UpMessage& message) {
    sequencer.on_message(message, {});
    return decide();
  }
  std::vector<LogEntry> decide() {
    sequencer.decide({});
    auto entries = std::exchange(sequencer.outbox(), {});
    written += entries.size();
    return entries;
  }
  Joined joined(std::int32_t rank, std::vector<Joined::Submission> submissions, std::uint64_t read) const {
    return {rank, 0, read, 0, std::move(submissions)};
  }
  void complete(std::uint64_t batches) { hear(Counted{core::kCompleted, {0, batches}}); }

  Sequencer sequencer{options()};
  std::uint64_t written = 0;  ///< entries
};

TEST_F(JoinSequencer, ListsWhatTheLogHasNotRun) {
  hear(declared("x", 1, {0, 1, 2}));
  // The rank had not read of x, and has y in flight.
  auto entries = hear(joined(1, {{"x", 1, kNoTensor, signature_of(1)}, {"y", 1, kNoTensor, signature_of(1)}}, 0));
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(std::get<RankJoined>(entries[0]).submissions, Names{"y"});
  EXPECT_EQ(only<Failed>(hear(declared("y", 1, {0, 2}, 2))).message,
            "tensor \"y\" of allreduce: ranks disagree about shape: [2] on ranks 0 and 2; [1] on rank 1. The operation "
            "did not run; submit the same on every rank.");
}

/// Its name says nothing any more of what became of a submission; the entries that the rank has read do.
TEST_F(JoinSequencer, KnowsWhatBecameOfANameThatHasLostItsId) {
  struct Case {
    std::uint64_t read;
    core::Round round;
    core::TensorId id;
    Names listed;
  };
  const Case cases[] = {
      {1, 1, 3, {}},             // had not read that it ran
      {2, 2, 3, {"x"}},          // had, and submitted it again, but not read that the id was evicted
      {5, 1, kNoTensor, {"x"}},  // had read that, too
  };
  for (const Case& one : cases) {
    Sequencer fresh{options()};
    const auto say = [&fresh](const UpMessage& message) {
      fresh.on_message(message, {});
      fresh.decide({});
      return std::exchange(fresh.outbox(), {});
    };
    say(declared("x", 1, {0, 1, 2}));
    say(declared("a", 1, {0, 1, 2}));
    EXPECT_TRUE(std::holds_alternative<Evicted>(say(declared("b", 1, {0, 1, 2})).at(0)));
    EXPECT_EQ(only<RankJoined>(say(Joined{1, 0, one.read, 0, {{"x", one.round, one.id, signature_of(1)}}})).submissions,
              one.listed)
        << "as of entry " << one.read;
  }
}

TEST_F(JoinSequencer, KnowsWhatFailedBeforeItHadAnId) {
  Declared x = declared("x", 1, {0, 1});
  x.variants.push_back({signature_of(2), {2}});
  hear(x);
  auto entries = hear(joined(1, {{"x", 1, kNoTensor, signature_of(1)}}, 0));
  EXPECT_TRUE(std::get<RankJoined>(entries.at(0)).submissions.empty());
  entries = hear(joined(2, {{"x", 2, kNoTensor, signature_of(1)}}, written));
  EXPECT_EQ(std::get<RankJoined>(entries.at(0)).submissions, Names{"x"});
}

TEST_F(JoinSequencer, MakesABatchOfWhatTheSameRanksSubmitted) {
  hear(joined(1, {{"y", 1, kNoTensor, signature_of(1)}}, 0));
  sequencer.on_message(declared("x", 1, {0, 2}), {});
  sequencer.on_message(declared("y", 1, {0, 2}), {});
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(std::get<BatchAppended>(entries[2]).members.size(), 1U);
  EXPECT_EQ(std::get<BatchAppended>(entries[3]).members.size(), 1U);
}

TEST_F(JoinSequencer, EndsAJoinWhenWhatAllSubmittedHasRun) {
  hear(joined(0, {{"x", 1, kNoTensor, signature_of(1)}}, 0));
  hear(joined(1, {}, 0));
  Joined last = joined(2, {{"y", 1, kNoTensor, signature_of(1)}}, 0);
  last.steps = 7;
  const auto entries = hear(last);
  ASSERT_EQ(entries.size(), 6U);
  EXPECT_TRUE(std::holds_alternative<RankJoined>(entries[0]));
  EXPECT_TRUE(std::holds_alternative<BatchAppended>(entries[3]));
  EXPECT_TRUE(std::holds_alternative<BatchAppended>(entries[4]));
  EXPECT_EQ(std::get<JoinEnded>(entries[5]).last, 2);
  EXPECT_EQ(std::get<JoinEnded>(entries[5]).steps, 7U);
}

TEST_F(JoinSequencer, FailsAJoinThatALeavingRankCannotEnd) {
  hear(joined(0, {}, 0));
  auto entries = hear(Departed{2});
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<JoinEnded>(entries[1]).code, ErrorCode::rank_lost);
  EXPECT_EQ(std::get<JoinEnded>(entries[1]).message, "rank 2 has shut down, so the join cannot end.");
  // Said without rank 0, before its leader knew.
  EXPECT_EQ(only<Failed>(hear(declared("x", 1, {1}))).message,
            "rank 2 has shut down and will not submit tensor \"x\".");
  EXPECT_EQ(only<JoinEnded>(hear(joined(1, {}, 0))).last, -1);
}

// ---------------------------------------------------------------- participant

class JoinParticipant : public testing::Test {
 protected:
  Outbox take() { return std::exchange(participant.outbox(), Outbox{}); }
  std::vector<Action> read(const LogEntry& entry) {
    std::vector<Action> actions;
    participant.on_log(entry, actions);
    return actions;
  }
  NameId submit(const std::string& name, std::int64_t elements) {
    const NameId name_id = participant.open(0, name);
    participant.submit(name_id, std::make_shared<const core::Signature>(signature_of(elements)));
    return name_id;
  }
  void end_join() {
    for (const std::int32_t rank : {0, 2}) read(RankJoined{0, rank, {}});
  }

  Participant participant{1, 3};
};

TEST_F(JoinParticipant, SaysWhatItHasInFlight) {
  submit("x", 1);
  read(Assigned{3, 1, 0, "x", signature_of(1)});
  read(BatchAppended{0, {3}});
  submit("x", 1);
  submit("a", 2);
  participant.end_step(0);
  take();
  const NameId join = participant.join(0);
  const Outbox out = take();
  ASSERT_EQ(out.messages.size(), 1U);
  const auto& said = std::get<Joined>(out.messages[0]);
  EXPECT_EQ(said.rank, 1);
  EXPECT_EQ(said.read, 2U);
  EXPECT_EQ(said.steps, 1U);
  ASSERT_EQ(said.submissions.size(), 2U);
  EXPECT_EQ(said.submissions[0].name, "a");
  EXPECT_EQ(said.submissions[0].id, kNoTensor);
  EXPECT_EQ(said.submissions[0].signature, signature_of(2));
  EXPECT_EQ(said.submissions[1].round, 2U);
  EXPECT_EQ(said.submissions[1].id, 3U);
  participant.overdue(join, 5, true);
  EXPECT_TRUE(std::get<Overdue>(take().messages.at(0)).request.join);
}

TEST_F(JoinParticipant, CountsRoundsOfOthersAlong) {
  const NameId join = participant.join(0);
  read(RankJoined{0, 1, {}});
  read(Failed{{0, "x", 1}, ErrorCode::mismatch, "no"});
  read(Assigned{3, 1, 0, "x", signature_of(4)});
  const auto batch = only<RunBatch>(read(BatchAppended{0, {3}}));
  EXPECT_EQ(batch.absent, Ranks{1});
  EXPECT_EQ(participant.name_of(batch.members.at(0)), "x");
  EXPECT_EQ(*participant.signature_of(batch.members.at(0)), signature_of(4));
  EXPECT_FALSE(participant.in_flight(batch.members.at(0)));
  EXPECT_EQ(participant.round_of(batch.members.at(0)), 2U);
  end_join();
  take();
  const auto ended = read(JoinEnded{0, 2, 9, ErrorCode::ok, ""});
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(std::get<JoinDone>(ended[0]).last, 2);
  EXPECT_EQ(std::get<JoinDone>(ended[0]).name, join);
  EXPECT_EQ(std::get<ForgetName>(ended[1]).name, join);
  EXPECT_EQ(take().counts.at(0), (std::pair<core::TensorId, CountWord>{core::kSteps, {0, 9}}));
  submit("x", 4);
  EXPECT_EQ(take().counts.at(0), (std::pair<core::TensorId, CountWord>{3, {1, 3}}));
}

TEST_F(JoinParticipant, ContributesToWhatItSubmittedBefore) {
  submit("x", 1);
  participant.join(0);
  read(RankJoined{0, 0, {"x", "z"}});
  read(RankJoined{0, 1, {"x"}});
  take();
  read(Assigned{3, 1, 0, "x", signature_of(1)});
  read(Assigned{4, 1, 0, "y", signature_of(1)});
  EXPECT_TRUE(std::get<RunBatch>(read(BatchAppended{0, {3}}).at(0)).absent.empty());
  EXPECT_EQ(std::get<RunBatch>(read(BatchAppended{0, {4}}).at(0)).absent, (Ranks{0, 1}));
  EXPECT_EQ(std::get<RunBatch>(read(BatchAppended{0, {3}}).at(0)).absent, (Ranks{0, 1}));
}

TEST_F(JoinParticipant, SaysNothingAgainAfterAnEviction) {
  submit("x", 1);
  read(Assigned{3, 1, 0, "x", signature_of(1)});
  read(BatchAppended{0, {3}});
  submit("x", 1);
  participant.join(0);
  take();
  read(Evicted{3, 1});
  EXPECT_TRUE(take().messages.empty());
  read(RankJoined{0, 1, {"x"}});
  read(Assigned{4, 1, 0, "x", signature_of(1)});
  EXPECT_EQ(std::get<RunBatch>(read(BatchAppended{0, {4}}).at(0)).members.size(), 1U);
}

TEST_F(JoinParticipant, AnswersAsOneWhoHasSubmitted) {
  participant.join(0);
  EXPECT_TRUE(std::get<AnswerQuery>(read(Query{1, {0, "x", 1}}).at(0)).answer.submitted);
  EXPECT_TRUE(std::get<AnswerQuery>(read(Query{2, {0, "", 1, {}, true}}).at(0)).answer.submitted);
  EXPECT_FALSE(std::get<AnswerQuery>(read(Query{3, {0, "pair", 1, {0, 1}}}).at(0)).answer.submitted);
}

TEST_F(JoinParticipant, AsksAboutASetThatNamesAnAbsentRank) {
  participant.ask_for_set({1, 2}, "pair");
  take();
  read(RankJoined{0, 0, {}});
  EXPECT_TRUE(take().messages.empty());
  read(RankJoined{0, 2, {}});
  EXPECT_EQ(only<Overdue>(take().messages).request.members, (Ranks{1, 2}));
}

}  // namespace
}  // namespace kolo::control
