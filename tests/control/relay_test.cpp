// SPDX-License-Identifier: Apache-2.0
#include "control/relay.hpp"

#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/control/only.hpp"

namespace kolo::control {
namespace {

using core::kNoTensor;
using Ranks = std::vector<std::int32_t>;

Declared declare(const std::string& name, core::Round round, Ranks ranks, std::int64_t elements = 1,
                 core::TensorId id = kNoTensor, std::uint16_t generation = 0) {
  return {0, name, round, id, generation, {{signature_of(elements), std::move(ranks)}}};
}

/// Ranks 0 and 1 are of this node, 2 and 3 below a child node.
class RelayTest : public testing::Test {
 protected:
  RelayTest() : relay(4, {{0}, {1}, {2, 3}}, 2, 2) {}
  std::vector<UpMessage> take() { return std::exchange(relay.outbox(), {}); }
  /// The ranks of which the relay answers that they have not submitted it.
  Ranks missing_of(const Request& request, std::int32_t asker = 3) {
    relay.on_log(Query{5, request, asker});
    Ranks ranks;
    for (const UpMessage& message : take()) {
      const auto& answer = std::get<Answer>(message);
      EXPECT_EQ(answer.query, 5U);
      if (!answer.submitted) ranks.push_back(answer.rank);
    }
    return ranks;
  }
  void assign(core::TensorId id, std::uint16_t generation, const std::string& name) {
    relay.on_log(Assigned{id, generation, 0, name, signature_of(1)});
  }
  void count(core::TensorId id, CountWord word) {
    for (std::size_t child = 0; child < 3; ++child) relay.on_count(child, id, word);
  }

  Relay relay;
};

TEST_F(RelayTest, SendsTheLeastCountWhenItRises) {
  assign(3, 1, "x");
  relay.on_count(0, 3, {1, 1});
  relay.on_count(1, 3, {1, 1});
  EXPECT_TRUE(take().empty());
  relay.on_message(2, Counted{3, {1, 1}});
  const auto said = only<Counted>(take());
  EXPECT_EQ(said.id, 3U);
  EXPECT_EQ(said.word, (CountWord{1, 1}));
  count(3, {1, 1});
  EXPECT_TRUE(take().empty()) << "repeats are free";
}

TEST_F(RelayTest, IgnoresWordsOfAnotherGeneration) {
  assign(3, 2, "x");
  count(3, {1, 5});
  EXPECT_TRUE(take().empty());
  relay.on_log(Evicted{3, 2});
  count(3, {2, 5});
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(relay.id_bound(), 4U);
}

TEST_F(RelayTest, MergesDeclarationsOfOneRound) {
  relay.on_message(1, declare("x", 1, {1}));
  relay.on_message(2, declare("x", 1, {2, 3}, 7));
  EXPECT_TRUE(take().empty());
  relay.on_message(0, declare("x", 1, {0}));
  const auto declared = only<Declared>(take());
  EXPECT_EQ(declared.name, "x");
  EXPECT_EQ(declared.round, 1U);
  EXPECT_EQ(declared.id, kNoTensor);
  ASSERT_EQ(declared.variants.size(), 2U);
  EXPECT_EQ(declared.variants[0].signature, signature_of(1));
  EXPECT_EQ(declared.variants[0].ranks, (Ranks{0, 1}));
  EXPECT_EQ(declared.variants[1].signature, signature_of(7));
  EXPECT_EQ(declared.variants[1].ranks, (Ranks{2, 3}));
  // From the assignment on everybody has reached round 1.
  assign(3, 1, "x");
  count(3, {1, 2});
  EXPECT_EQ(std::get<Counted>(take().at(0)).word, (CountWord{1, 2}));
}

TEST_F(RelayTest, MergesDeclarationsWithCounts) {
  assign(3, 1, "x");
  relay.on_count(0, 3, {1, 1});
  relay.on_message(1, declare("x", 1, {1}, 9, 3, 1));
  relay.on_message(2, Counted{3, {1, 1}});
  const auto declared = only<Declared>(take());
  EXPECT_EQ(declared.id, 3U);
  EXPECT_EQ(declared.generation, 1);
  ASSERT_EQ(declared.variants.size(), 2U);
  EXPECT_EQ(declared.variants[0].ranks, Ranks{1});
  EXPECT_FALSE(declared.variants[1].signature.has_value());
  EXPECT_EQ(declared.variants[1].ranks, (Ranks{0, 2, 3}));
  // The new generation keeps the counts; the next bare one jumps over the round that was declared.
  assign(3, 2, "x");
  count(3, {2, 2});
  EXPECT_EQ(std::get<Counted>(take().at(0)).word, (CountWord{2, 2}));
}

TEST_F(RelayTest, DropsWhatAnEvictionVoids) {
  assign(3, 1, "x");
  relay.on_message(0, declare("x", 1, {0}, 9, 3, 1));
  relay.on_count(1, 3, {1, 1});
  relay.on_log(Evicted{3, 1});
  // Said before the child could know.
  relay.on_message(2, declare("x", 1, {2, 3}, 9, 3, 1));
  EXPECT_TRUE(take().empty());
  for (std::size_t child = 0; child < 3; ++child) {
    relay.on_message(child, declare("x", 1, child == 2 ? Ranks{2, 3} : Ranks{static_cast<std::int32_t>(child)}, 9));
  }
  EXPECT_EQ(std::get<Declared>(take().at(0)).variants.at(0).ranks, (Ranks{0, 1, 2, 3}));
}

TEST_F(RelayTest, WaitsOnlyForChildrenWithMembers) {
  relay.on_log(SetAdded{1, core::kFirstRow, 1, {1, 3}, ""});
  Declared declared = declare("x", 1, {1});
  declared.set = 1;
  relay.on_message(1, declared);
  EXPECT_TRUE(take().empty());
  declared.variants[0].ranks = {3};
  relay.on_message(2, declared);
  EXPECT_EQ(std::get<Declared>(take().at(0)).variants[0].ranks, (Ranks{1, 3}));
  EXPECT_EQ(relay.id_bound(), core::kReservedIds) << "a set takes no room from names";
  relay.on_log(SetRemoved{1});
  relay.on_message(1, declared);
  EXPECT_TRUE(take().empty()) << "of a set that is gone";
}

TEST_F(RelayTest, WaitsForTheMembersThatARequestNames) {
  const auto ask_for = [](const std::string& name, Ranks members, Ranks said_by) {
    core::Signature signature;
    signature.kind = core::CollectiveKind::add_process_set;
    signature.ranks = members;
    return Declared{0, name, 1, kNoTensor, 0, {{signature, std::move(said_by)}}, std::move(members)};
  };
  const auto missing = [this](const std::string& name, const Ranks& members) {
    return missing_of({0, name, 1, members});
  };
  for (const std::int32_t rank : {0, 1}) relay.on_log(RankDeparted{rank});
  EXPECT_EQ(missing("", {0, 1, 3}), (Ranks{0, 1}));
  relay.on_message(1, ask_for("", {1, 3}, {1}));
  relay.on_message(1, ask_for("", {0, 1, 3}, {1}));
  EXPECT_EQ(missing("", {0, 1, 3}), Ranks{0});
  EXPECT_EQ(missing("", {1, 3}), Ranks{});
  EXPECT_EQ(missing("other", {1, 3}), Ranks{1});
  relay.on_message(2, ask_for("other", {1, 3}, {3}));
  EXPECT_TRUE(take().empty());
  relay.on_message(2, ask_for("", {1, 3}, {3}));
  const auto said = only<Declared>(take());
  EXPECT_EQ(said.members, (Ranks{1, 3}));
  EXPECT_EQ(said.variants.at(0).ranks, (Ranks{1, 3}));
  // The same again is another request.
  relay.on_log(SetAdded{1, core::kFirstRow, 1, {3, 1}, ""});
  relay.on_message(2, ask_for("", {1, 3}, {3}));
  EXPECT_EQ(missing("", {1, 3}), Ranks{1});
  relay.on_log(Failed{{0, "", 1, {1, 3}}, ErrorCode::rank_lost, "gone"});
  relay.on_message(1, ask_for("", {1, 3}, {1}));
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(missing("", {0, 1, 3}), Ranks{0}) << "which has not failed";
}

TEST_F(RelayTest, PassesOnThatAllHaveDroppedASet) {
  relay.on_log(SetAdded{1, core::kFirstRow, 1, {1, 3}, ""});
  relay.on_count(1, core::kFirstRow + core::kDropped, {1, 1});
  EXPECT_TRUE(take().empty());
  relay.on_message(2, Counted{core::kFirstRow + core::kDropped, {1, 1}});
  EXPECT_EQ(std::get<Counted>(take().at(0)).id, core::kFirstRow + core::kDropped);
}

TEST_F(RelayTest, SendsCompletionsAtOnceAfterOrdinaryBatches) {
  assign(3, 1, "x");
  relay.on_log(BatchAppended{0, {3}});
  count(core::kCompleted, {0, 1});
  EXPECT_EQ(std::get<Counted>(take().at(0)).word, (CountWord{0, 1}));
}

TEST_F(RelayTest, HoldsCompletionsBackWhileAPlanRuns) {
  assign(3, 1, "x");
  relay.on_log(PlanDefined{0, 0, {{3}}});
  relay.on_log(PlannedBatch{0, 0});
  count(core::kCompleted, {0, 1});
  EXPECT_TRUE(take().empty());
  // They travel with the next other count ...
  count(3, {1, 2});
  auto up = take();
  ASSERT_EQ(up.size(), 2U);
  EXPECT_EQ(std::get<Counted>(up[0]).id, 3U);
  EXPECT_EQ(std::get<Counted>(up[1]).id, core::kCompleted);
  // ... or when the sequencer may be waiting: two batches are open here.
  relay.on_log(PlannedBatch{0, 0});
  count(core::kCompleted, {0, 2});
  EXPECT_TRUE(take().empty());
  relay.on_log(PlannedBatch{0, 0});
  EXPECT_EQ(std::get<Counted>(take().at(0)).word, (CountWord{0, 2}));
  // ... or when an ordinary batch follows.
  count(core::kCompleted, {0, 3});
  EXPECT_TRUE(take().empty());
  relay.on_log(BatchAppended{0, {3}});
  EXPECT_EQ(std::get<Counted>(take().at(0)).word, (CountWord{0, 3}));
}

TEST_F(RelayTest, AnswersForItsOwnRanksThatHaveLeft) {
  const auto missing = [this](const std::string& name, core::Round round) { return missing_of({0, name, round}); };
  EXPECT_EQ(missing("x", 1), Ranks{}) << "they answer by themselves";
  relay.on_log(RankDeparted{3});
  EXPECT_EQ(missing("x", 1), Ranks{}) << "another leader answers for it";
  for (const std::int32_t rank : {0, 1}) relay.on_log(RankDeparted{rank});
  EXPECT_EQ(missing("x", 1), (Ranks{0, 1}));
  EXPECT_EQ(missing_of({0, "x", 1}, 0), Ranks{1}) << "the asker knows by itself what it waits for";
  relay.on_message(1, declare("x", 1, {1}));
  EXPECT_EQ(missing("x", 1), Ranks{0});
  relay.on_message(0, declare("x", 1, {0}));
  relay.on_message(2, declare("x", 1, {2, 3}));
  take();
  EXPECT_EQ(missing("x", 1), Ranks{}) << "passed on, not yet answered";
  assign(3, 1, "x");
  EXPECT_EQ(missing("x", 1), Ranks{});
  relay.on_count(0, 3, {1, 2});
  EXPECT_EQ(missing("x", 2), Ranks{1});
}

TEST_F(RelayTest, PassesTheRestOnAtOnce) {
  relay.on_message(2, PartAwaited{2, 0, 0, {3}, 1});
  relay.on_message(0, Overdue{0, {0, "x", 1}, 1.0});
  relay.on_message(2, Answer{1, 3, false, Doing::nothing, {}, std::nullopt});
  relay.on_message(1, RankLost{1, ErrorCode::rank_lost, "gone"});
  relay.on_message(2, Departed{2});
  EXPECT_EQ(take().size(), 5U);
}

TEST_F(RelayTest, AsksOnceForAllWhoAreStarved) {
  relay.on_message(0, Starved{0});
  relay.on_message(2, Starved{3});
  EXPECT_EQ(take().size(), 1U);
  relay.on_message(1, Starved{1});
  EXPECT_TRUE(take().empty()) << "not answered yet";
  relay.on_log(Push{});
  relay.on_message(1, Starved{1});
  EXPECT_EQ(std::get<Starved>(take().at(0)).rank, 1);
}

/// The rank that the only message names as the last.
template <class Message>
std::int32_t last_of(const std::vector<UpMessage>& up) {
  EXPECT_EQ(up.size(), 1U);
  return std::get<Message>(up.at(0)).last;
}

TEST_F(RelayTest, SaysWhichRankWasTheLast) {
  assign(3, 1, "x");
  relay.on_message(2, Counted{3, {1, 1}, 2});
  relay.end_pass();
  relay.on_count(0, 3, {1, 1});
  relay.end_pass();
  relay.on_count(1, 3, {1, 1});
  EXPECT_EQ(last_of<Counted>(take()), 1);
  relay.on_count(0, 3, {1, 2});
  relay.on_count(1, 3, {1, 2});
  relay.end_pass();
  relay.on_message(2, Counted{3, {1, 2}, 3});
  EXPECT_EQ(last_of<Counted>(take()), 3) << "as the node below says";
  relay.on_count(0, 3, {1, 3});
  relay.on_message(1, declare("x", 3, {1}, 9, 3, 1));
  relay.end_pass();
  relay.on_message(2, Counted{3, {1, 3}, -1});
  EXPECT_EQ(last_of<Declared>(take()), -1) << "the node below does not know";
}

TEST_F(RelayTest, SaysWhoDeclaredANewNameLast) {
  relay.on_message(0, declare("x", 1, {0}));
  relay.on_message(2, declare("x", 1, {2, 3}));
  relay.end_pass();
  relay.on_message(1, declare("x", 1, {1}));
  EXPECT_EQ(last_of<Declared>(take()), 1);
}

TEST_F(RelayTest, TellsNobodyApartWithinAPassButTheLeaderItself) {
  assign(3, 1, "x");
  relay.on_count(0, 3, {1, 1});
  relay.end_pass();
  relay.on_message(2, Counted{3, {1, 1}, 2});
  relay.on_count(1, 3, {1, 1});
  EXPECT_EQ(last_of<Counted>(take()), -1);
  relay.end_pass();
  relay.on_message(2, Counted{3, {1, 2}, 2});
  relay.on_count(1, 3, {1, 2});
  relay.on_count(0, 3, {1, 2});
  EXPECT_EQ(last_of<Counted>(take()), 0);
}

TEST_F(RelayTest, SaysWhoMadeACallLast) {
  const auto grown = [](core::Round first, std::int32_t last) {
    SequenceGrown message{0, first, {{0, 1}}, last};
    if (first == 1) message.repeats[0].signature = signature_of(1);
    return message;
  };
  relay.on_message(0, grown(1, -1));
  relay.on_message(2, grown(1, 3));
  relay.end_pass();
  relay.on_message(1, grown(1, -1));
  EXPECT_EQ(last_of<SequenceGrown>(take()), 1);
  relay.on_message(0, grown(2, -1));
  relay.on_message(1, grown(2, -1));
  relay.end_pass();
  relay.on_message(2, grown(2, 3));
  EXPECT_EQ(last_of<SequenceGrown>(take()), 3);
}

TEST_F(RelayTest, StartsAfreshAfterAFailure) {
  relay.on_message(0, declare("x", 1, {0}, 9));
  relay.on_message(1, declare("x", 1, {1}, 9));
  relay.on_message(2, declare("x", 1, {2, 3}, 9));
  take();
  relay.on_log(Failed{{0, "x", 1}, ErrorCode::mismatch, "no"});
  relay.on_message(0, declare("x", 2, {0}));
  for (const std::int32_t rank : {0, 1}) relay.on_log(RankDeparted{rank});
  EXPECT_EQ(missing_of({0, "x", 2}), Ranks{1});
}

}  // namespace
}  // namespace kolo::control
