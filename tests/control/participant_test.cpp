// SPDX-License-Identifier: Apache-2.0
#include "control/participant.hpp"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/control/only.hpp"

namespace kolo::control {
namespace {

using core::kNoTensor;
using SignaturePointer = std::shared_ptr<const core::Signature>;

SignaturePointer of_length(std::int64_t elements) {
  return std::make_shared<const core::Signature>(signature_of(elements));
}

class ParticipantTest : public testing::Test {
 protected:
  ParticipantTest() : participant(1, 4) {}

  Outbox take() { return std::exchange(participant.outbox(), Outbox{}); }
  std::vector<Action> read(const LogEntry& entry) {
    std::vector<Action> actions;
    participant.on_log(entry, actions);
    return actions;
  }
  /// A name that has been assigned `id`, generation 1, and has run once.
  NameId known(const std::string& name, core::TensorId id, const SignaturePointer& signature) {
    const NameId name_id = participant.open(0, name);
    participant.submit(name_id, signature);
    read(Assigned{id, 1, 0, name, *signature});
    read(BatchAppended{0, {id}});
    take();
    return name_id;
  }

  Participant participant;
};

TEST_F(ParticipantTest, DeclaresANewNameWholeAndCountsItAfterwards) {
  const auto signature = of_length(3);
  const NameId name_id = participant.open(0, "x");
  EXPECT_EQ(participant.open(0, "x"), name_id);
  EXPECT_EQ(participant.name_of(name_id), "x");
  participant.submit(name_id, signature);
  EXPECT_TRUE(participant.in_flight(name_id));
  Outbox out = take();
  ASSERT_EQ(out.messages.size(), 1U);
  EXPECT_TRUE(out.counts.empty());
  const auto& declared = std::get<Declared>(out.messages[0]);
  EXPECT_EQ(declared.name, "x");
  EXPECT_EQ(declared.round, 1U);
  EXPECT_EQ(declared.id, kNoTensor);
  ASSERT_EQ(declared.variants.size(), 1U);
  EXPECT_EQ(declared.variants[0].signature, *signature);
  EXPECT_EQ(declared.variants[0].ranks, std::vector<std::int32_t>{1});

  EXPECT_TRUE(read(Assigned{3, 1, 0, "x", *signature}).empty());
  const auto said = only<RunBatch>(read(BatchAppended{0, {3}}));
  EXPECT_EQ(said.members, std::vector<NameId>{name_id});
  EXPECT_EQ(said.plan_key, 0U);
  EXPECT_FALSE(participant.in_flight(name_id));

  participant.submit(name_id, signature);
  out = take();
  EXPECT_TRUE(out.messages.empty());
  ASSERT_EQ(out.counts.size(), 1U);
  EXPECT_EQ(out.counts[0].first, 3U);
  EXPECT_EQ(out.counts[0].second, (CountWord{1, 2}));
  EXPECT_EQ(participant.counters().declared, 1U);
  EXPECT_EQ(participant.counters().bare, 1U);
  EXPECT_EQ(participant.id_bound(), 4U);
}

TEST_F(ParticipantTest, CountsAnEqualSignatureAndDeclaresAChangedOne) {
  const NameId name_id = known("x", 3, of_length(3));
  participant.submit(name_id, of_length(3));
  EXPECT_EQ(take().counts[0].second, (CountWord{1, 2}));
  read(BatchAppended{0, {3}});
  participant.submit(name_id, of_length(4));
  const Outbox out = take();
  EXPECT_TRUE(out.counts.empty());
  const auto& declared = std::get<Declared>(out.messages.at(0));
  EXPECT_EQ(declared.round, 3U);
  EXPECT_EQ(declared.id, 3U);
  EXPECT_EQ(declared.generation, 1);
  // A new generation; the count jumps over the round that was declared.
  read(Assigned{3, 2, 0, "x", *of_length(4)});
  read(BatchAppended{0, {3}});
  participant.submit(name_id, of_length(4));
  EXPECT_EQ(take().counts[0].second, (CountWord{2, 4}));
}

TEST_F(ParticipantTest, AMismatchConsumesTheRoundAndKeepsTheGeneration) {
  const NameId name_id = known("x", 3, of_length(3));
  participant.submit(name_id, of_length(4));
  take();
  const auto said = only<FailName>(read(Failed{{0, "x", 2}, ErrorCode::mismatch, "no"}));
  EXPECT_EQ(said.name, name_id);
  EXPECT_EQ(said.status.code(), ErrorCode::mismatch);
  EXPECT_EQ(said.status.message(), "no");
  EXPECT_FALSE(participant.in_flight(name_id));
  participant.submit(name_id, of_length(3));
  EXPECT_EQ(take().counts[0].second, (CountWord{1, 3}));
  EXPECT_TRUE(read(Failed{{0, "x", 2}, ErrorCode::mismatch, "old"}).empty());
  EXPECT_TRUE(participant.in_flight(name_id));
}

TEST_F(ParticipantTest, SendsAgainWhatAnEvictionVoids) {
  const auto signature = of_length(3);
  const NameId name_id = known("x", 3, signature);
  participant.submit(name_id, signature);
  take();
  EXPECT_TRUE(read(Evicted{3, 1}).empty());
  const Outbox out = take();
  // The word goes back to zero: a later life of the id cannot mistake it.
  ASSERT_EQ(out.counts.size(), 1U);
  EXPECT_EQ(out.counts[0], (std::pair<core::TensorId, CountWord>{3, CountWord{}}));
  const auto& declared = std::get<Declared>(out.messages.at(0));
  EXPECT_EQ(declared.round, 1U);
  EXPECT_EQ(declared.id, kNoTensor);
  EXPECT_EQ(declared.variants[0].signature, *signature);
  read(Assigned{5, 1, 0, "x", *signature});
  EXPECT_EQ(std::get<RunBatch>(read(BatchAppended{0, {5}}).at(0)).members, std::vector<NameId>{name_id});
}

TEST_F(ParticipantTest, ForgetsAnIdleNameThatIsEvicted) {
  const NameId name_id = known("x", 3, of_length(3));
  EXPECT_EQ(only<ForgetName>(read(Evicted{3, 1})).name, name_id);
  EXPECT_TRUE(take().empty());
  EXPECT_EQ(participant.open(0, "y"), name_id);
}

TEST_F(ParticipantTest, CountsCompletionsAndSteps) {
  participant.completed(0);
  participant.completed(0);
  participant.end_step(0);
  const Outbox out = take();
  ASSERT_EQ(out.counts.size(), 3U);
  EXPECT_EQ(out.counts[1], (std::pair<core::TensorId, CountWord>{core::kCompleted, CountWord{0, 2}}));
  EXPECT_EQ(out.counts[2], (std::pair<core::TensorId, CountWord>{core::kSteps, CountWord{0, 1}}));
}

class PlannedTest : public ParticipantTest {
 protected:
  PlannedTest() {
    for (core::TensorId id = 3; id < 6; ++id) name_ids.push_back(known("t" + std::to_string(id), id, signature));
    read(PlanDefined{7, 0, {{3, 4, 5}}});
  }
  SignaturePointer signature = of_length(2);
  std::vector<NameId> name_ids;
};

TEST_F(PlannedTest, RunsABatchByItsNumber) {
  for (const NameId name_id : name_ids) participant.submit(name_id, signature);
  const auto run = only<RunBatch>(read(PlannedBatch{7, 0}));
  EXPECT_EQ(run.members, name_ids);
  EXPECT_EQ(run.plan_key, 8U);
  EXPECT_EQ(run.number, 0U);
  EXPECT_EQ(participant.counters().planned_batches, 1U);
  EXPECT_EQ(std::get<DropPlan>(read(PlanVoided{7}).at(0)).plan_key, 8U);
}

TEST_F(PlannedTest, ReportsInterestInABatchThatItHasSubmittedInPart) {
  participant.submit(name_ids[1], signature);
  EXPECT_TRUE(take().messages.empty());
  participant.set_awaiting(true);
  Outbox out = take();
  ASSERT_EQ(out.messages.size(), 1U);
  const auto& awaited = std::get<PartAwaited>(out.messages[0]);
  EXPECT_EQ(awaited.rank, 1);
  EXPECT_EQ(awaited.plan, 7U);
  EXPECT_EQ(awaited.batch, 0U);
  EXPECT_EQ(awaited.lacking, (std::vector<core::TensorId>{3, 5}));
  EXPECT_EQ(awaited.round, 2U);
  EXPECT_TRUE(take().messages.empty()) << "once";
  // The report is out of date when more has been submitted, and due again while something is still lacking.
  participant.submit(name_ids[0], signature);
  out = take();
  ASSERT_EQ(out.messages.size(), 1U);
  EXPECT_EQ(std::get<PartAwaited>(out.messages[0]).lacking, std::vector<core::TensorId>{5});
  participant.submit(name_ids[2], signature);
  EXPECT_TRUE(take().messages.empty());
}

TEST_F(PlannedTest, ReportsNothingWhenItHasSubmittedAllOrNone) {
  participant.set_awaiting(true);
  EXPECT_TRUE(take().messages.empty());
  for (const NameId name_id : name_ids) participant.submit(name_id, signature);
  EXPECT_TRUE(take().messages.empty());
}

TEST_F(ParticipantTest, CountsWhatIsInFlightWhenAPlanBegins) {
  const NameId a = known("a", 3, of_length(1));
  known("b", 4, of_length(1));
  participant.submit(a, of_length(1));
  take();
  participant.set_awaiting(true);
  read(PlanDefined{0, 0, {{3, 4}}});
  EXPECT_EQ(std::get<PartAwaited>(take().messages.at(0)).lacking, std::vector<core::TensorId>{4});
}

constexpr core::TensorId kRow = core::kFirstRow;

TEST_F(ParticipantTest, AsksForASetAndDropsIt) {
  const NameId request = participant.ask_for_set({2, 1}, "pair");
  const auto declared = std::get<Declared>(take().messages.at(0));
  EXPECT_EQ(declared.set, core::kGlobalSet);
  EXPECT_EQ(declared.name, "pair");
  EXPECT_EQ(declared.members, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(declared.variants.at(0).signature->ranks, (std::vector<std::int32_t>{2, 1}));
  auto actions = read(SetAdded{1, kRow, 4, {2, 1}, "pair"});
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(std::get<SetMade>(actions[0]).set, 1U);
  EXPECT_EQ(std::get<SetMade>(actions[0]).members, (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(std::get<SetMade>(actions[0]).name, request);
  EXPECT_EQ(std::get<ForgetName>(actions[1]).name, request);
  EXPECT_EQ(participant.id_bound(), core::kReservedIds) << "a set takes no room from names";

  const NameId name_id = participant.open(1, "x");
  participant.submit(name_id, of_length(1));
  participant.end_step(1);
  take();
  participant.drop(1);
  EXPECT_TRUE(take().counts.empty()) << "something is in flight";
  read(Assigned{3, 5, 1, "x", *of_length(1)});
  read(BatchAppended{1, {3}});
  EXPECT_TRUE(take().counts.empty()) << "its batch runs";
  participant.completed(1);
  using Counts = std::vector<std::pair<core::TensorId, CountWord>>;
  EXPECT_EQ(take().counts, (Counts{{kRow + core::kCompleted, {4, 1}}, {kRow + core::kDropped, {4, 1}}}));
  actions = read(SetRemoved{1});
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(std::get<ForgetName>(actions[0]).name, name_id);
  EXPECT_EQ(std::get<SetGone>(actions[1]).set, 1U);
  // Nothing is left in the row's words but those that were not written.
  EXPECT_EQ(take().counts,
            (Counts{{kRow + core::kCompleted, {}}, {kRow + core::kSteps, {}}, {kRow + core::kDropped, {}}}));
}

TEST_F(ParticipantTest, DropsItsSetsWhenItLeaves) {
  participant.ask_for_set({1, 2}, "");
  read(SetAdded{1, kRow, 1, {1, 2}, ""});
  participant.ask_for_set({1, 3}, "");
  take();
  participant.leave();
  const Outbox outbox = take();
  ASSERT_EQ(outbox.counts.size(), 1U);
  EXPECT_EQ(outbox.counts[0].first, kRow + core::kDropped);
  EXPECT_TRUE(outbox.departed.has_value());
  // One that is made only now is dropped at once.
  read(SetAdded{2, kRow + core::kReservedIds, 1, {1, 3}, ""});
  EXPECT_EQ(take().counts.at(0).first, kRow + core::kReservedIds + core::kDropped);
}

TEST_F(ParticipantTest, AsksAtOnceAboutASetOfARankThatHasLeft) {
  participant.ask_for_set({0, 1}, "");
  participant.ask_for_set({1, 2}, "");
  take();
  read(RankDeparted{2});
  const auto messages = take().messages;
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(std::get<Overdue>(messages[0]).request.members, (std::vector<std::int32_t>{1, 2}));
  const auto actions = read(Failed{{0, "", 1, {1, 2}}, ErrorCode::rank_lost, "gone"});
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(std::get<FailName>(actions[0]).status.message(), "gone");
  EXPECT_TRUE(std::holds_alternative<ForgetName>(actions[1]));
  participant.ask_for_set({1, 2}, "");
  EXPECT_EQ(take().messages.size(), 2U) << "declared, and asked about";
}

TEST_F(ParticipantTest, IgnoresEntriesOfSetsOfOthers) {
  read(SetAdded{1, kRow, 1, {0, 3}, ""});
  EXPECT_TRUE(read(Assigned{20, 1, 1, "x", *of_length(1)}).empty());
  EXPECT_TRUE(read(BatchAppended{1, {20}}).empty());
  EXPECT_TRUE(read(PlanDefined{0, 1, {{20}}}).empty());
  EXPECT_TRUE(read(PlannedBatch{0, 0}).empty());
  EXPECT_TRUE(read(PlanVoided{0}).empty());
  EXPECT_TRUE(read(Evicted{20, 1}).empty());
  EXPECT_EQ(participant.counters().batches, 0U);
}

TEST_F(ParticipantTest, AsksAtOnceWhereARankHasLeft) {
  const NameId name_id = known("x", 3, of_length(3));
  participant.submit(name_id, of_length(3));
  take();
  read(RankDeparted{2});
  const auto overdue = std::get<Overdue>(take().messages.at(0));
  EXPECT_EQ(overdue.request.name, "x");
  EXPECT_EQ(overdue.request.round, 2U);
  EXPECT_EQ(overdue.waited_s, 0);
  EXPECT_FALSE(overdue.deadline);
  read(Failed{{0, "x", 2}, ErrorCode::rank_lost, "gone"});
  participant.submit(name_id, of_length(3));
  EXPECT_EQ(std::get<Overdue>(take().messages.at(0)).request.round, 3U);
}

/// A question can come when the wait that it is about is over, and the rank waits for the next request of that name.
TEST_F(ParticipantTest, DoesNotAnswerForTheNextRequestOfTheSameName) {
  const auto has_submitted = [this](const Request& request, std::int32_t asker) {
    return std::get<AnswerQuery>(read(Query{1, request, asker}).at(0)).answer.submitted;
  };
  participant.overdue(participant.ask_for_set({1, 2}, "pair"), 600, true);
  const Request first = std::get<Overdue>(take().messages.at(1)).request;
  EXPECT_TRUE(has_submitted(first, 1));
  read(SetAdded{1, kRow, 1, {1, 2}, "pair"});
  EXPECT_FALSE(has_submitted(first, 1));
  participant.overdue(participant.ask_for_set({1, 2}, "pair"), 1, false);
  const Request second = std::get<Overdue>(take().messages.at(1)).request;
  EXPECT_NE(first.serial, second.serial);
  EXPECT_FALSE(has_submitted(first, 1));
  EXPECT_TRUE(has_submitted(second, 1));
  EXPECT_TRUE(has_submitted(second, 2)) << "the serial is the other rank's own";
  // Rounds of a name begin anew when its id has been evicted.
  const NameId name_id = known("x", 3, of_length(3));
  participant.submit(name_id, of_length(3));
  participant.overdue(name_id, 600, true);
  const Request third = std::get<Overdue>(take().messages.at(0)).request;
  EXPECT_EQ(third.round, 2U);
  read(Evicted{3, 1});
  EXPECT_TRUE(has_submitted(third, 1)) << "it is sent again, as round 1";
  EXPECT_TRUE(has_submitted(third, 2)) << "what is in flight here is the same";
  read(Failed{{0, "x", 1}, ErrorCode::mismatch, "no"});
  EXPECT_FALSE(has_submitted(third, 1)) << "it waits no more";
}

TEST_F(ParticipantTest, HandsOnStallsFaultsAndTheEnd) {
  EXPECT_EQ(std::get<ReportStall>(read(Stalled{{0, "x", 1}, 60, {2}}).at(0)).stall.request.name, "x");
  const auto fault = std::get<WorldFault>(read(Faulted{ErrorCode::timeout, 2, "late"}).at(0));
  EXPECT_EQ(fault.status.code(), ErrorCode::timeout);
  EXPECT_EQ(fault.rank, 2);
  EXPECT_TRUE(std::holds_alternative<WorldClosed>(read(Closed{}).at(0)));
  EXPECT_TRUE(std::holds_alternative<PushTransport>(read(Push{}).at(0)));
  participant.starved();
  EXPECT_EQ(std::get<Starved>(take().messages.at(0)).rank, 1);
  participant.leave();
  const Outbox outbox = take();
  EXPECT_TRUE(outbox.messages.empty());
  EXPECT_EQ(outbox.departed.value().rank, 1);
}

TEST_F(ParticipantTest, RefusesToSubmitTwice) {
  const NameId name_id = participant.open(0, "x");
  participant.submit(name_id, of_length(1));
  EXPECT_DEATH(participant.submit(name_id, of_length(1)), "'x' is in flight already");
}

}  // namespace
}  // namespace kolo::control
