// SPDX-License-Identifier: Apache-2.0
//
// Whom the sequencer names when a deadline has passed.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "control/sequencer.hpp"

namespace kolo::control {
namespace {

/// Three nodes of two ranks, one below the other: rank 4 speaks through rank 2, and that through rank 0.
class Deadline : public testing::Test {
 protected:
  static SequencerOptions defaults() {
    SequencerOptions options;
    options.size = 6;
    options.speaks_through = {-1, 0, 0, 2, 2, 4};
    return options;
  }

  void SetUp() override {
    sequencer.on_message(Overdue{0, {0, "x", 1}, 600, true, true}, now);
    const auto entries = decide();
    ASSERT_EQ(entries.size(), 1U);
    const auto& query = std::get<Query>(entries[0]);
    number = query.query;
  }
  std::vector<LogEntry> decide() {
    sequencer.decide(now);
    return std::exchange(sequencer.outbox(), {});
  }
  Answer from(std::int32_t rank, bool submitted = true, Doing doing = Doing::nothing) const {
    Answer answer;
    answer.query = number;
    answer.rank = rank;
    answer.submitted = submitted;
    answer.doing = doing;
    return answer;
  }
  void hear(const Answer& answer) { sequencer.on_message(answer, now); }
  void hear_rest(std::vector<std::int32_t> ranks) {
    for (const std::int32_t rank : ranks) hear(from(rank));
  }
  /// The first question ends, and after these messages there is another: not all have submitted.
  void ask_after(const std::vector<UpMessage>& messages) {
    hear_rest({0, 1, 2, 3, 4, 5});
    for (const UpMessage& message : messages) sequencer.on_message(message, now);
    sequencer.on_message(Overdue{0, {0, "x", 1}, 600, true}, now);
    number = std::get<Query>(decide().back()).query;
  }
  void pass_time() { now = sequencer.next_deadline(); }
  /// What the world is told, without its beginning and its end.
  std::string reason() {
    const auto entries = decide();
    if (entries.size() != 1) return "(" + std::to_string(entries.size()) + " entries)";
    const auto& faulted = std::get<Faulted>(entries[0]);
    EXPECT_EQ(faulted.code, ErrorCode::timeout);
    blamed = faulted.rank;
    const std::string begin = "tensor \"x\" has not completed within 600 s: ";
    const std::string end = ". The contents of the buffers in flight are undefined.";
    EXPECT_EQ(faulted.message.substr(0, begin.size()), begin);
    EXPECT_EQ(faulted.message.substr(faulted.message.size() - end.size()), end);
    return faulted.message.substr(begin.size(), faulted.message.size() - begin.size() - end.size());
  }

  Sequencer sequencer{defaults()};
  Sequencer::Time now{};
  std::uint64_t number = 0;
  std::int32_t blamed = -2;
};

TEST_F(Deadline, NamesTheSilent) {
  for (const std::int32_t rank : {0, 1, 2, 4}) hear(from(rank, rank == 0));
  EXPECT_TRUE(decide().empty());
  EXPECT_EQ(sequencer.next_deadline(), now + std::chrono::seconds(5));
  pass_time();
  EXPECT_EQ(reason(), "ranks 3 and 5 do not answer; their processes are stopped, or kept from running");
  EXPECT_EQ(blamed, -1);
}

/// Also where others have not submitted: they may be waiting for it.
TEST_F(Deadline, NamesTheSilentBeforeTheMissing) {
  for (const std::int32_t rank : {0, 1, 2, 3, 4}) hear(from(rank, rank != 1));
  pass_time();
  EXPECT_EQ(reason(), "rank 5 does not answer; its process is stopped, or kept from running");
  EXPECT_EQ(blamed, 5);
}

TEST_F(Deadline, NamesTheLeaderThroughWhichTheOthersSpeak) {
  hear_rest({0, 1});
  pass_time();
  EXPECT_EQ(reason(), "rank 2 does not answer; its process is stopped, or kept from running");
  EXPECT_EQ(blamed, 2);
}

TEST_F(Deadline, NamesTheMissingAndWhatTheyWaitFor) {
  hear_rest({0, 2, 3, 5});
  Answer waiting = from(1, false);
  waiting.wait = Request{0, kSequence, 7};
  hear(waiting);
  waiting.rank = 4;
  hear(waiting);
  EXPECT_EQ(reason(), "ranks 1 and 4 have not submitted it; ranks 1 and 4 wait for unnamed call number 7");
  EXPECT_EQ(sequencer.next_deadline(), Sequencer::Time::max());
}

TEST_F(Deadline, NamesTheRankThatWaitsForNobody) {
  for (const std::int32_t rank : {0, 1, 3, 4, 5}) {
    Answer waiting = from(rank, true, Doing::waiting);
    waiting.awaited = {2};
    hear(waiting);
  }
  hear(from(2, true, Doing::standing));
  EXPECT_EQ(reason(), "every rank has submitted it, but rank 2 makes no progress with it");
  EXPECT_EQ(blamed, 2);
}

TEST_F(Deadline, SaysWhoWaitsForWhomIfAllWait) {
  hear_rest({1, 2, 3, 5});
  Answer waiting = from(4, true, Doing::waiting);
  waiting.awaited = {0};
  hear(waiting);
  waiting = from(0, true, Doing::waiting);
  waiting.awaited = {1, 4};
  hear(waiting);
  EXPECT_EQ(reason(), "every rank has submitted it; rank 0 waits for data of ranks 1 and 4; rank 4 waits for data of "
                      "rank 0");
}

TEST_F(Deadline, SaysWhatItKnowsIfNobodyCanSayMore) {
  for (std::int32_t rank = 0; rank < 6; ++rank) hear(from(rank, true, Doing::waiting));
  EXPECT_EQ(reason(), "every rank has submitted it");
}

TEST_F(Deadline, IsForgottenIfTheBatchHasCompletedMeanwhile) {
  hear_rest({0, 1, 2, 3, 4, 5});
  EXPECT_TRUE(decide().empty());
  EXPECT_EQ(sequencer.next_deadline(), Sequencer::Time::max());
}

TEST_F(Deadline, DoesNotWaitForARankThatHasLeft) {
  sequencer.on_message(Departed{3}, now);
  EXPECT_EQ(std::get<RankDeparted>(decide().at(0)).rank, 3);
  for (const std::int32_t rank : {0, 1, 2, 4, 5}) hear(from(rank, true, Doing::waiting));
  EXPECT_EQ(reason(), "every rank has submitted it");
}

/// Its leader knows that it has not submitted, and the job goes on.
TEST_F(Deadline, FailsOnlyTheRequestIfARankHasLeftWithoutSubmitting) {
  ask_after({Departed{3}});
  for (const std::int32_t rank : {0, 1, 2, 4, 5}) hear(from(rank));
  EXPECT_TRUE(decide().empty());
  hear(from(3, false));
  EXPECT_EQ(std::get<Failed>(decide().at(0)).message, "rank 3 has shut down and will not submit tensor \"x\".");
}

TEST_F(Deadline, NamesARankThatHasLeftIfNobodyAnswersForIt) {
  ask_after({Departed{2}, Departed{3}});
  for (const std::int32_t rank : {0, 1, 2, 4, 5}) hear(from(rank));
  pass_time();
  EXPECT_EQ(reason(), "rank 3 has not submitted it (rank 3 has shut down)");
}

/// Its question may be about an earlier request of that name: only the asker itself knows.
TEST_F(Deadline, WaitsForTheAnswerOfAnAskerThatHasLeft) {
  ask_after({});
  sequencer.on_message(Departed{0}, now);
  decide();
  for (const std::int32_t rank : {1, 2, 3, 4}) hear(from(rank));
  hear(from(5, false));
  EXPECT_TRUE(decide().empty());
  hear(from(0, false));
  EXPECT_TRUE(decide().empty()) << "its wait was over";
  EXPECT_EQ(sequencer.next_deadline(), Sequencer::Time::max());
}

TEST_F(Deadline, IsForgottenIfTheAskerHasLeftAndDoesNotAnswer) {
  ask_after({});
  sequencer.on_message(Departed{0}, now);
  decide();
  for (const std::int32_t rank : {1, 2, 3, 4}) hear(from(rank));
  hear(from(5, false));
  pass_time();
  EXPECT_TRUE(decide().empty());
  EXPECT_EQ(sequencer.next_deadline(), Sequencer::Time::max());
}

TEST_F(Deadline, NamesTheRankBecauseOfWhichAnotherHasNotSubmitted) {
  ask_after({Departed{1}, Deserted{3, 1}});
  for (const std::int32_t rank : {0, 1, 2, 4, 5}) hear(from(rank));
  hear(from(3, false));
  EXPECT_EQ(reason(), "rank 1 has left the job, and because of that rank 3 has not submitted it");
  EXPECT_EQ(blamed, 1);
}

TEST_F(Deadline, HearsEachRankOnce) {
  hear(from(1));
  hear(from(1, false));
  for (const std::int32_t rank : {0, 2, 3, 4}) hear(from(rank));
  pass_time();
  EXPECT_EQ(reason(), "rank 5 does not answer; its process is stopped, or kept from running");
}

}  // namespace
}  // namespace kolo::control
