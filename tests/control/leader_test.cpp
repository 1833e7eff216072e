// SPDX-License-Identifier: Apache-2.0
#include "control/leader.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/lone_link.hpp"

namespace kolo::control {
namespace {

/// The root's channel to one child node, whose words the test puts into it.
class ScriptedChannel : public ControlChannel {
 public:
  [[nodiscard]] std::optional<int> parent() const noexcept override { return std::nullopt; }
  [[nodiscard]] const std::vector<int>& children() const noexcept override { return children_; }
  [[nodiscard]] std::vector<int> descriptors() const override { return {}; }
  void attach(base::Poller&, std::uint64_t) override {}
  void send(int, ByteView frame) override { sent.emplace_back(frame.begin(), frame.end()); }
  void service(Handler& handler) override {
    for (const auto& deliver : std::exchange(incoming, {})) deliver(handler);
  }
  [[nodiscard]] bool flushed() const noexcept override { return true; }
  void expect_close() noexcept override {}

  std::vector<std::function<void(Handler&)>> incoming;
  std::vector<Bytes> sent;

 private:
  const std::vector<int> children_{1};
};

Bytes framed(const Bytes& bytes) {
  Bytes frame(sizeof(std::uint32_t) + bytes.size());
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(frame.data(), &length, sizeof length);
  std::memcpy(frame.data() + sizeof length, bytes.data(), bytes.size());
  return frame;
}
Bytes frame_of(const UpMessage& message) {
  Bytes bytes;
  encode(message, bytes);
  return framed(bytes);
}
Bytes frame_of(const LogEntry& entry) {
  Bytes bytes;
  encode(entry, bytes);
  return framed(bytes);
}

class LeaderOfTwoNodes : public ::testing::Test {
 protected:
  base::Settings settings_;
  core::Topology topology_ = core::make_topology(0, {0, 1}, 0);
  kolo::testing::LoneLink link_{board_shape(settings_, 1).bytes()};
  Board board_{link_.memory(), board_shape(settings_, 1), 0};
  ScriptedChannel channel_;
  Leader leader_{topology_, settings_, board_, [this](int rank) { link_.wake(rank); }, &channel_, [](std::string) {}};
};

TEST_F(LeaderOfTwoNodes, WhatWasHeardIsOwedUntilItHasBeenPassedOn) {
  EXPECT_FALSE(leader_.has_news());
  const Bytes frame = frame_of(Departed{1});
  channel_.incoming.push_back([&](auto& handler) { handler.on_frame(1, ByteView(frame.data(), frame.size())); });
  EXPECT_TRUE(leader_.service_sockets());
  EXPECT_TRUE(leader_.has_news());  // a driver that sleeps now would leave it there
  EXPECT_TRUE(channel_.sent.empty());
  EXPECT_TRUE(leader_.step(base::now()));
  EXPECT_FALSE(leader_.has_news());
  EXPECT_FALSE(channel_.sent.empty());  // the root has told all that rank 1 has left
  Bytes entry;
  ASSERT_TRUE(board_.next_log_entry(entry));
  const LogEntry read = decode_log(ByteView(entry.data(), entry.size()));
  ASSERT_TRUE(std::holds_alternative<RankDeparted>(read));
  EXPECT_EQ(std::get<RankDeparted>(read).rank, 1);
}

/// A message that the sequencer refuses ends in a fatal error, and does not stand in the way of the words that say so.
TEST_F(LeaderOfTwoNodes, WhatIsRefusedIsNotPassedAgain) {
  board_.publish_quietly(core::kCompleted, {0, 1});  // no batch was appended
  const Bytes frame = frame_of(Counted{core::kCompleted, {0, 1}});
  channel_.incoming.push_back([&](auto& handler) { handler.on_frame(1, ByteView(frame.data(), frame.size())); });
  leader_.service_sockets();
  EXPECT_THROW(for (int step = 0; step < 3; ++step) leader_.step(base::now()), Error);
  Bytes message;
  encode(RankLost{0, ErrorCode::transport, "a control message is not valid"}, message);
  ASSERT_TRUE(board_.post(ByteView(message.data(), message.size())));
  for (int step = 0; step < 3 && !leader_.ended(); ++step) leader_.step(base::now());
  EXPECT_TRUE(leader_.ended());
}

TEST_F(LeaderOfTwoNodes, ALostNodeIsAFaultThatNamesItsLeader) {
  channel_.incoming.push_back([](auto& handler) { handler.on_lost(1, "connection reset"); });
  leader_.service_sockets();
  EXPECT_TRUE(leader_.has_news());
  leader_.step(base::now());
  EXPECT_TRUE(leader_.ended());
  Bytes entry;
  ASSERT_TRUE(board_.next_log_entry(entry));
  const LogEntry read = decode_log(ByteView(entry.data(), entry.size()));
  ASSERT_TRUE(std::holds_alternative<Faulted>(read));
  EXPECT_EQ(std::get<Faulted>(read).rank, 1);
  EXPECT_EQ(std::get<Faulted>(read).code, ErrorCode::rank_lost);
}

TEST_F(LeaderOfTwoNodes, ANodeWhoseLeaderHasLeftIsNoLoss) {
  const Bytes frame = frame_of(Departed{1});
  channel_.incoming.push_back([&](auto& handler) { handler.on_frame(1, ByteView(frame.data(), frame.size())); });
  leader_.service_sockets();
  leader_.step(base::now());
  Bytes entry;
  ASSERT_TRUE(board_.next_log_entry(entry));
  channel_.incoming.push_back([](auto& handler) { handler.on_lost(1, "connection closed"); });
  leader_.service_sockets();
  leader_.step(base::now());
  EXPECT_FALSE(leader_.ended());
  ASSERT_TRUE(board_.next_log_entry(entry));
  EXPECT_TRUE(std::get<RankDeparted>(decode_log(view_of(entry))).gone);
  EXPECT_FALSE(board_.next_log_entry(entry));
}

/// Rank 0, which all others need, stops although rank 1 has not left.
TEST_F(LeaderOfTwoNodes, ClosesTheLogForAllWhenTheRootGoes) {
  Bytes message;
  encode(UpMessage(Departed{0}), message);
  ASSERT_TRUE(board_.post(ByteView(message.data(), message.size())));
  leader_.go(base::now());
  EXPECT_TRUE(leader_.ended());
  Bytes entry;
  ASSERT_TRUE(board_.next_log_entry(entry));
  EXPECT_TRUE(std::holds_alternative<RankDeparted>(decode_log(view_of(entry))));
  ASSERT_TRUE(board_.next_log_entry(entry));
  EXPECT_TRUE(std::holds_alternative<Closed>(decode_log(view_of(entry))));
  ASSERT_EQ(channel_.sent.size(), 1U);
  Bytes both = frame_of(LogEntry(RankDeparted{0}));
  const Bytes last = frame_of(LogEntry(Closed{}));
  both.insert(both.end(), last.begin(), last.end());
  EXPECT_EQ(channel_.sent[0], both);
}

Bytes empty_message() { return Bytes(sizeof(std::uint32_t)); }

TEST_F(LeaderOfTwoNodes, SaysThatItRunsWhenItIsAsked) {
  const Bytes frame = empty_message();
  channel_.incoming.push_back([&](auto& handler) { handler.on_frame(1, ByteView(frame.data(), frame.size())); });
  leader_.service_sockets();
  ASSERT_EQ(channel_.sent.size(), 1U);
  EXPECT_EQ(channel_.sent[0], empty_message());
}

/// Of a node without others below it.
struct ChannelUp final : ScriptedChannel {
  [[nodiscard]] std::optional<int> parent() const noexcept override { return 0; }
  [[nodiscard]] const std::vector<int>& children() const noexcept override { return none_; }
  const std::vector<int> none_{};
};

/// The leader of the node below, rank 1.
class LeaderBelow : public LeaderOfTwoNodes {
 protected:
  void SetUp() override {
    const UpMessage message = Overdue{1, {0, "x", 1}, 600, true};
    Bytes bytes;
    encode(message, bytes);
    ASSERT_TRUE(board_below_.post(ByteView(bytes.data(), bytes.size())));
    below_.step(now_);
    Bytes wanted = frame_of(message);
    for (const std::byte b : empty_message()) wanted.push_back(b);
    ASSERT_EQ(up_.sent.size(), 1U);
    EXPECT_EQ(up_.sent[0], wanted);
    EXPECT_EQ(below_.next_deadline(), now_ + std::chrono::milliseconds(2500));
  }

  const base::Time now_ = base::now();
  core::Topology topology_below_ = core::make_topology(1, {0, 1}, 0);
  kolo::testing::LoneLink link_below_{board_shape(settings_, 1).bytes()};
  Board board_below_{link_below_.memory(), board_shape(settings_, 1), 0};
  ChannelUp up_;
  Leader below_{topology_below_,   settings_, board_below_, [this](int rank) { link_below_.wake(rank); }, &up_,
                [](std::string) {}};
};

TEST_F(LeaderBelow, NamesTheLeaderAboveThatDoesNotAnswer) {
  below_.step(now_ + std::chrono::milliseconds(2499));
  EXPECT_FALSE(below_.ended());
  below_.step(now_ + std::chrono::milliseconds(2500));
  EXPECT_TRUE(below_.ended());
  Bytes entry;
  ASSERT_TRUE(board_below_.next_log_entry(entry));
  const LogEntry read = decode_log(ByteView(entry.data(), entry.size()));
  ASSERT_TRUE(std::holds_alternative<Faulted>(read));
  EXPECT_EQ(std::get<Faulted>(read).rank, 0);
  EXPECT_EQ(std::get<Faulted>(read).code, ErrorCode::timeout);
  EXPECT_EQ(std::get<Faulted>(read).message,
            "tensor \"x\" has not completed within 603 s: rank 0 does not answer; its process is stopped, or kept from "
            "running. The contents of the buffers in flight are undefined.");
}

TEST_F(LeaderBelow, GoesOnWhenTheLeaderAboveAnswers) {
  const Bytes frame = empty_message();
  up_.incoming.push_back([&](auto& handler) { handler.on_frame(0, ByteView(frame.data(), frame.size())); });
  below_.service_sockets();
  EXPECT_EQ(below_.next_deadline(), base::Time::max());
  below_.step(now_ + std::chrono::seconds(10));
  EXPECT_FALSE(below_.ended());
  Bytes entry;
  EXPECT_FALSE(board_below_.next_log_entry(entry));
}

/// Ranks 1 to 3 on the node below, of which the first leads. Ranks 1 and 2 are a group.
class LeaderOfAGroup : public ::testing::Test {
 protected:
  static constexpr core::SetId kGroup = 1;

  void SetUp() override { hear(SetAdded{kGroup, core::kFirstRow, 0, {1, 2}, ""}); }
  void hear(const LogEntry& entry) {
    const Bytes frame = frame_of(entry);
    up_.incoming.push_back([&](auto& handler) { handler.on_frame(0, ByteView(frame.data(), frame.size())); });
    leader_.service_sockets();
    leader_.step(base::now());
    leader_.wake_ranks();
  }
  /// Whether that rank sleeps, and is rung for this entry.
  bool wakes(int rank, const LogEntry& entry) {
    Board sleeper(link_.memory(), shape_, rank - 1);
    sleeper.mark_asleep();
    const std::uint64_t before = leader_.counters().wakeups;
    hear(entry);
    const std::uint64_t woken = leader_.counters().wakeups - before;
    sleeper.mark_awake();
    return woken == 1;
  }

  base::Settings settings_;
  core::Topology topology_ = core::make_topology(1, {0, 1, 1, 1}, 0);
  BoardShape shape_ = board_shape(settings_, 3);
  kolo::testing::LoneLink link_{shape_.bytes()};
  Board board_{link_.memory(), shape_, 0};
  ChannelUp up_;
  Leader leader_{topology_, settings_, board_, [this](int rank) { link_.wake(rank); }, &up_, [](std::string) {}};
};

TEST_F(LeaderOfAGroup, WakesTheMembersAlone) {
  constexpr std::uint32_t kPlan = 7;
  constexpr core::TensorId kId = core::kReservedIds;
  const std::vector<LogEntry> entries{
      BatchAppended{kGroup, {kId}},
      PlanDefined{kPlan, kGroup, {{kId}}},
      PlannedBatch{kPlan, 0},
      SequenceAppended{kGroup, 3},
      SequenceFailed{kGroup, 4, ErrorCode::mismatch, "ranks disagree"},
      SequenceEnded{kGroup, 4, ErrorCode::rank_lost, "rank 0 has left"},
  };
  for (const LogEntry& entry : entries) {
    EXPECT_TRUE(wakes(2, entry)) << entry.index();
    EXPECT_FALSE(wakes(3, entry)) << entry.index();
  }
  EXPECT_TRUE(wakes(2, RankDeparted{0}));
  EXPECT_TRUE(wakes(3, RankDeparted{3})) << "that is for all";
}

TEST_F(LeaderOfAGroup, NamesTheLeaderAboveThatDoesNotAnswerForAGroupThatIsMade) {
  const UpMessage question = Overdue{1, {0, "next", 1, {1, 2}}, 600, true};
  Bytes bytes;
  encode(question, bytes);
  ASSERT_TRUE(board_.post(ByteView(bytes.data(), bytes.size())));
  const base::Time now = base::now();
  leader_.step(now);
  leader_.step(now + std::chrono::milliseconds(2500));
  LogEntry last;
  for (Bytes entry; board_.next_log_entry(entry);) {
    last = decode_log(ByteView(entry.data(), entry.size()));
  }
  ASSERT_TRUE(std::holds_alternative<Faulted>(last));
  EXPECT_EQ(std::get<Faulted>(last).message,
            "group \"next\" of ranks 1 and 2 has not been made within 603 s: rank 0 does not answer; its process is "
            "stopped, or kept from running. The contents of the buffers in flight are undefined.");
}

/// A node of three ranks and a short log. Rank 2 has read nothing of it.
TEST(Leader, TellsOfADeathThatFilledTheLog) {
  base::Settings settings;
  settings.log_ring_bytes = 4096;
  const core::Topology topology = core::make_topology(0, {0, 0, 0}, 0);
  const BoardShape shape = board_shape(settings, 3);
  kolo::testing::LoneLink link(shape.bytes());
  Board board(link.memory(), shape, 0);
  Board survivor(link.memory(), shape, 1);
  Leader leader(
      topology, settings, board, [&link](int rank) { link.wake(rank); }, nullptr, [](std::string) {});
  Bytes filler(500);
  Bytes entry;
  while (board.append_log(ByteView(filler.data(), filler.size()))) {
    ASSERT_TRUE(board.next_log_entry(entry));
    ASSERT_TRUE(survivor.next_log_entry(entry));
  }
  leader.on_local_death(2);
  leader.step(base::now());
  ASSERT_TRUE(survivor.next_log_entry(entry));
  const LogEntry read = decode_log(ByteView(entry.data(), entry.size()));
  ASSERT_TRUE(std::holds_alternative<Faulted>(read));
  EXPECT_EQ(std::get<Faulted>(read).rank, 2);
  EXPECT_EQ(std::get<Faulted>(read).message,
            "rank 2 was lost: its process has ended. The contents of the buffers in flight are undefined.");
}

/// A world of one rank, which speaks through its board as an engine would.
class LeaderOfOneRank : public ::testing::Test {
 protected:
  void declare(const std::string& name) {
    Declared declared;
    declared.name = name;
    declared.round = 1;
    core::Signature signature;
    signature.tensors.push_back({DType::float32, Shape{4}});
    declared.variants.push_back({signature, {0}});
    Bytes bytes;
    encode(UpMessage(declared), bytes);
    ASSERT_TRUE(board_.post(ByteView(bytes.data(), bytes.size())));
  }
  /// Until nothing is left to do.
  void step_and_read() {
    while (leader_.step(base::now())) read();
  }
  void read() {
    Bytes bytes;
    while (board_.next_log_entry(bytes)) {
      const LogEntry entry = decode_log(ByteView(bytes.data(), bytes.size()));
      if (const auto* assigned = std::get_if<Assigned>(&entry)) ids_.push_back(assigned->id);
      if (const auto* plan = std::get_if<PlanDefined>(&entry)) plans_.push_back(*plan);
      if (std::holds_alternative<BatchAppended>(entry) || std::holds_alternative<PlannedBatch>(entry)) {
        board_.publish_quietly(core::kCompleted, reserved(++batches_));
      }
    }
  }
  [[nodiscard]] static CountWord reserved(std::uint64_t count) { return {0, count}; }
  [[nodiscard]] static CountWord named(std::uint64_t count) { return {1, count}; }  // the first generation

  base::Settings settings_;
  core::Topology topology_ = core::make_topology(0, {0}, 0);
  kolo::testing::LoneLink link_{board_shape(settings_, 1).bytes()};
  Board board_{link_.memory(), board_shape(settings_, 1), 0};
  Leader leader_{topology_, settings_, board_, [this](int rank) { link_.wake(rank); }, nullptr, [](std::string) {}};
  std::vector<core::TensorId> ids_;
  std::vector<PlanDefined> plans_;
  std::uint64_t batches_ = 0;
};

/// A rank's departure is a message, what it submitted before may be a count. Both are found in one look.
TEST_F(LeaderOfOneRank, HearsWhatARankSubmittedBeforeItsDeparture) {
  declare("w");
  step_and_read();
  ASSERT_EQ(ids_.size(), 1U);
  const std::uint64_t before = batches_;
  board_.publish_count(ids_[0], named(2));
  Bytes departure;
  encode(UpMessage(Departed{0}), departure);
  ASSERT_TRUE(board_.post(ByteView(departure.data(), departure.size())));
  while (!leader_.ended()) leader_.step(base::now());
  read();
  EXPECT_EQ(batches_, before + 1) << "the last submission runs";
}

/// A count may be found before its bell has rung. If it is the next step's, and what has rung is the end of the step
/// before it, both are heard in one look.
TEST_F(LeaderOfOneRank, WhoSeesTheNextStepHasSeenTheEndOfTheLast) {
  board_.publish_count(core::kSteps, reserved(1));  // steps end by word from now on, not by repetition
  step_and_read();
  declare("first");
  declare("second");
  step_and_read();
  ASSERT_EQ(ids_.size(), 2U);
  board_.publish_count(ids_[0], named(2));  // the leader will look on from here
  step_and_read();
  for (std::uint64_t step = 2; step < 8; ++step) {
    board_.publish_count(core::kSteps, reserved(step));
    if (step == 2) {
      board_.publish_quietly(ids_[1], named(step));
      step_and_read();
    }
    board_.publish_count(ids_[1], named(step));  // in step 2 the same word: its bell
    board_.publish_count(ids_[0], named(step + 1));
    step_and_read();
  }
  ASSERT_EQ(plans_.size(), 1U);
  ASSERT_EQ(plans_[0].batches.size(), 1U);
  EXPECT_EQ(plans_[0].batches[0].size(), 2U);
}

}  // namespace
}  // namespace kolo::control
