// SPDX-License-Identifier: Apache-2.0
//
// Sequences of calls without a name: how they pass over a link, meet in a relay, and become batches.
#include "control/sequence_link.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "control/codec.hpp"
#include "control/participant.hpp"
#include "control/relay.hpp"
#include "control/sequencer.hpp"
#include "tests/control/only.hpp"

namespace kolo::control {
namespace {

using SignaturePtr = std::shared_ptr<const core::Signature>;

SignaturePtr allreduce_of(std::int64_t elements) {
  return std::make_shared<const core::Signature>(signature_of(elements));
}

std::string refusal_of(SequenceReceiver& receiver, SequenceGrown message) {
  try {
    static_cast<void>(receiver.receive(std::move(message)));
  } catch (const Error& error) {
    return error.status().message();
  }
  return "";
}

/// As it arrives.
SequenceGrown sent(SequenceSender& sender) {
  Bytes bytes;
  encode(UpMessage(sender.next_message()), bytes);
  return std::get<SequenceGrown>(decode_up(bytes));
}

// ---------------------------------------------------------------- a link

TEST(SequenceLink, SaysASignatureOnce) {
  SequenceSender sender(3);
  SequenceReceiver receiver;
  const SignaturePtr one = allreduce_of(1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(sender.add(one), static_cast<core::Round>(i + 1));
  SequenceGrown message = sent(sender);
  EXPECT_EQ(message.set, 3U);
  EXPECT_EQ(message.first, 1U);
  ASSERT_EQ(message.repeats.size(), 1U);
  EXPECT_EQ(message.repeats[0].count, 1000U);
  EXPECT_TRUE(message.repeats[0].signature.has_value());
  const std::vector<Calls> first = receiver.receive(std::move(message));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(*first[0].signature, *one);
  EXPECT_FALSE(sender.has_news());
  // An equal one, elsewhere in memory.
  sender.add(allreduce_of(1));
  sender.add(one);
  Bytes bytes;
  SequenceGrown next = sender.next_message();
  encode(UpMessage(next), bytes);
  EXPECT_LE(bytes.size(), 10U);
  EXPECT_EQ(next.first, 1001U);
  ASSERT_EQ(next.repeats.size(), 1U);
  EXPECT_EQ(next.repeats[0].count, 2U);
  EXPECT_EQ(*receiver.receive(std::move(next))[0].signature, *one);
  EXPECT_EQ(receiver.calls(), 1002U);
}

/// Far more signatures than a link has numbers for, some of them again and again.
TEST(SequenceLink, GivesNumbersAgain) {
  SequenceSender sender(0);
  SequenceReceiver receiver;
  for (std::int64_t i = 0; i < 5 * kLinkSignatures; ++i) {
    std::vector<SignaturePtr> said{allreduce_of(1 + i), allreduce_of(1 + i / 2), allreduce_of(1 + i)};
    for (const SignaturePtr& signature : said) sender.add(signature);
    std::vector<SignaturePtr> heard;
    for (const Calls& calls : receiver.receive(sent(sender))) heard.insert(heard.end(), calls.count, calls.signature);
    ASSERT_EQ(heard.size(), said.size());
    for (std::size_t at = 0; at < said.size(); ++at) ASSERT_EQ(*heard[at], *said[at]) << i;
  }
}

/// All numbers are given anew within one message.
TEST(SequenceLink, GivesNumbersAgainWithinAMessage) {
  SequenceSender sender(0);
  SequenceReceiver receiver;
  for (std::int64_t i = 0; i < 3 * kLinkSignatures; ++i) sender.add(allreduce_of(1 + i));
  std::int64_t at = 0;
  for (const Calls& calls : receiver.receive(sent(sender))) EXPECT_EQ(*calls.signature, *allreduce_of(1 + at++));
  EXPECT_EQ(at, 3 * kLinkSignatures);
}

/// These have equal hashes.
TEST(SequenceLink, KeepsApartWhatDiffersInItsScalesAlone) {
  SequenceSender sender(0);
  SequenceReceiver receiver;
  core::Signature scaled = *allreduce_of(5);
  scaled.prescale = 0.5;
  sender.add(allreduce_of(5));
  sender.add(std::make_shared<const core::Signature>(scaled));
  sender.add(allreduce_of(5));
  const std::vector<Calls> heard = receiver.receive(sent(sender));
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(*heard[0].signature, *allreduce_of(5));
  EXPECT_EQ(*heard[1].signature, scaled);
  EXPECT_EQ(*heard[2].signature, *allreduce_of(5));
}

TEST(SequenceLink, RefusesWhatDoesNotFollow) {
  SequenceReceiver receiver;
  const std::string invalid = "a control message is not valid: ";
  EXPECT_EQ(receiver.receive({0, 5, {{0, 1, *allreduce_of(1)}}}).size(), 1U) << "four have avoided the log";
  EXPECT_EQ(refusal_of(receiver, {0, 5, {{0, 1}}}), invalid + "a sequence does not go on where it was");
  EXPECT_EQ(refusal_of(receiver, {0, 6, {{1, 1}}}), invalid + "a signature has a number that means nothing");
  SequenceReceiver other;
  EXPECT_EQ(refusal_of(other, {0, 1, {{1, 1, *allreduce_of(1)}}}),
            invalid + "a signature has a number that does not follow");
}

// ---------------------------------------------------------------- merging

/// A relay of three ranks, as its children speak to it.
class Node {
 public:
  Node() : relay_(3, {{0}, {1}, {2}}, 3) {}
  /// Calls avoid the log.
  void pass(std::size_t child, core::Round last) { said_[child].go_on_from(last); }
  void call(std::size_t child, std::int64_t elements, int count = 1) {
    for (int i = 0; i < count; ++i) said_[child].add(allreduce_of(elements));
    relay_.on_message(child, sent(said_[child]));
  }
  void read(const LogEntry& entry) { relay_.on_log(entry); }
  void join(std::size_t child) {
    relay_.on_message(
        child,
        Joined{static_cast<std::int32_t>(child), 0, 0, 0, {}, said_[child].calls(), false, said_[child].calls()});
  }
  /// What has gone up since the last time: calls, disputed ones without a signature.
  std::vector<Calls> heard() {
    std::vector<Calls> calls;
    for (UpMessage& message : std::exchange(relay_.outbox(), {})) {
      if (!std::holds_alternative<SequenceGrown>(message)) continue;
      for (Calls& one : up_.receive(std::get<SequenceGrown>(std::move(message)))) calls.push_back(std::move(one));
    }
    return calls;
  }
  /// The number of the last call that has gone up.
  core::Round numbered() {
    heard();
    return up_.calls();
  }
  Relay& relay() { return relay_; }

 private:
  Relay relay_;
  std::vector<SequenceSender> said_{SequenceSender(0), SequenceSender(0), SequenceSender(0)};
  SequenceReceiver up_;
};

TEST(SequenceRelay, PassesOnWhatAllHaveMade) {
  Node node;
  node.call(0, 1, 1000);
  node.call(1, 1, 400);
  EXPECT_TRUE(node.heard().empty());
  node.call(2, 1, 600);
  std::vector<Calls> heard = node.heard();
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].count, 400U);
  node.call(1, 1, 600);
  heard = node.heard();
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].count, 200U);
  node.call(2, 1, 400);
  heard = node.heard();
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].count, 400U);
}

TEST(SequenceRelay, SeesWhereRanksDisagree) {
  Node node;
  for (const std::size_t child : {0, 2}) {
    node.call(child, 1, 2);
    node.call(child, 2);
    node.call(child, 1);
  }
  node.call(1, 1, 2);
  node.call(1, 7);
  node.call(1, 1);
  const std::vector<Calls> heard = node.heard();
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard[0].count, 2U);
  EXPECT_EQ(heard[1].signature, nullptr);
  ASSERT_EQ(heard[1].variants.size(), 2U);
  EXPECT_EQ(heard[1].variants[0].signature, *allreduce_of(2));
  EXPECT_EQ(heard[1].variants[0].ranks, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(heard[1].variants[1].signature, *allreduce_of(7));
  EXPECT_EQ(heard[1].variants[1].ranks, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(*heard[2].signature, *allreduce_of(1));
}

/// Numbers are missing on all links alike.
TEST(SequenceRelay, PassesOverCallsThatHaveAvoidedTheLog) {
  Node node;
  for (const std::size_t child : {0, 1, 2}) node.call(child, 1, 2);
  EXPECT_EQ(node.heard().at(0).count, 2U);
  for (const std::size_t child : {0, 1, 2}) {
    node.pass(child, 7);
    node.call(child, 1);
  }
  EXPECT_EQ(node.numbered(), 8U);
}

TEST(SequenceRelay, RefusesCallsThatHaveAvoidedTheLogOnSomeRanks) {
  Node node;
  node.pass(0, 7);
  node.call(0, 1);
  node.call(1, 1);
  EXPECT_THROW(node.call(2, 1), Error);
  Node other;
  other.call(0, 1);
  other.pass(0, 7);
  EXPECT_THROW(other.call(0, 1), Error) << "with one on its way";
}

/// What a child says in another node's name is refused.
TEST(SequenceRelay, RefusesVariantsOfOtherRanks) {
  Node node;
  SequenceGrown forged{0, 1, {{0, 1, std::nullopt, {{*allreduce_of(1), {0}}, {*allreduce_of(2), {1}}}}}};
  EXPECT_THROW(node.relay().on_message(0, forged), Error);
}

TEST(SequenceRelay, SaysOfTheRanksThatHaveLeftWhichHaveNotComeSoFar) {
  Node node;
  node.call(0, 1, 3);
  node.call(2, 1, 2);
  for (const std::int32_t rank : {0, 1, 2}) node.read(RankDeparted{rank});
  node.read(Query{9, {0, kSequence, 3}});
  std::vector<std::int32_t> missing;
  for (const UpMessage& message : std::exchange(node.relay().outbox(), {})) {
    if (const auto& answer = std::get<Answer>(message); !answer.submitted) missing.push_back(answer.rank);
  }
  EXPECT_EQ(missing, (std::vector<std::int32_t>{1, 2}));
}

/// A joined rank is waited for as far as it had come, and all go on from the log's number when the join ends.
TEST(SequenceRelay, WaitsForAJoinedRankAsFarAsItHadCome) {
  Node node;
  node.call(0, 1, 5);
  node.call(1, 1, 5);
  node.call(2, 1, 2);
  node.join(2);
  std::vector<Calls> heard = node.heard();
  ASSERT_EQ(heard.size(), 2U);  // with the third rank, and without
  EXPECT_EQ(heard[0].count, 2U);
  EXPECT_EQ(heard[1].count, 3U);
  node.read(SequenceAppended{0, 5});
  node.join(0);
  node.join(1);
  node.read(JoinEnded{0, 1, 0, ErrorCode::ok, {}, 5});
  EXPECT_TRUE(node.heard().empty());
}

// ---------------------------------------------------------------- deciding

class Root {
 public:
  explicit Root(int ranks = 3) : sequencer_(options_of(ranks)) {}
  static SequencerOptions options_of(int ranks) {
    SequencerOptions options;
    options.size = ranks;
    options.fusion_threshold = 40;  // ten elements
    return options;
  }
  void hear(const UpMessage& message) { sequencer_.on_message(message, {}); }
  void calls(std::int64_t elements, std::uint64_t count) {
    said_.add({allreduce_of(elements), count});
    hear(said_.next_message());
  }
  void pass(core::Round last) { said_.go_on_from(last); }
  void dispute() {
    said_.add({nullptr, 1, {{*allreduce_of(1), {0, 2}}, {*allreduce_of(2), {1}}}});
    hear(said_.next_message());
  }
  template <class Entry>
  std::vector<Entry> decided() {
    sequencer_.decide({});
    std::vector<Entry> found;
    for (LogEntry& entry : std::exchange(sequencer_.outbox(), {})) {
      if (auto* match = std::get_if<Entry>(&entry)) found.push_back(std::move(*match));
    }
    return found;
  }

 private:
  Sequencer sequencer_;
  SequenceSender said_{0};
};

TEST(SequenceSequencer, CutsBatchesByTheThreshold) {
  Root root;
  root.calls(2, 12);  // five fit
  const auto batches = root.decided<SequenceAppended>();
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0].calls, 5U);
  EXPECT_EQ(batches[1].calls, 5U);
  EXPECT_EQ(batches[2].calls, 2U);
  EXPECT_TRUE(batches[0].repeats.empty());
}

TEST(SequenceSequencer, GivesACallTheNumberThatItHasOnTheRanks) {
  Root root;
  root.calls(1, 2);
  EXPECT_EQ(root.decided<SequenceAppended>().size(), 1U);
  root.pass(9);
  root.dispute();
  const auto failed = root.decided<SequenceFailed>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].call, 10U);
}

TEST(SequenceSequencer, RefusesCallsThatHaveAvoidedTheLogWithOthersOnTheirWay) {
  Root root;
  root.calls(1, 2);
  root.pass(9);
  EXPECT_THROW(root.calls(1, 1), Error);
}

TEST(SequenceSequencer, GathersWhileBatchesAreOpen) {
  Root root;
  for (int i = 0; i < 4; ++i) {
    root.calls(1, 1);
    EXPECT_EQ(root.decided<SequenceAppended>().size(), 1U);
  }
  for (int i = 0; i < 6; ++i) {
    root.calls(1, 1);
    EXPECT_TRUE(root.decided<SequenceAppended>().empty());
  }
  root.hear(Counted{core::kCompleted, {0, 1}});
  const auto batches = root.decided<SequenceAppended>();
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].calls, 6U);
}

TEST(SequenceSequencer, FailsADisputedCallInItsPlace) {
  Root root;
  root.calls(1, 2);
  root.dispute();
  root.calls(1, 1);
  const auto failed = root.decided<SequenceFailed>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].call, 3U);
  EXPECT_EQ(failed[0].code, ErrorCode::mismatch);
  EXPECT_EQ(failed[0].message,
            "unnamed call number 3 of allreduce: ranks disagree about shape: [1] on ranks 0 and 2; [2] on "
            "rank 1. The operation did not run; submit the same on every rank.");
}

TEST(SequenceSequencer, EndsASequenceWhereARankHasLeft) {
  Root root;
  root.calls(1, 2);
  EXPECT_EQ(root.decided<SequenceAppended>().size(), 1U);
  root.hear(Departed{1, {{0, 5}}});
  EXPECT_TRUE(root.decided<SequenceEnded>().empty());
  root.hear(Overdue{0, {0, kSequence, 5}, 0});
  EXPECT_TRUE(root.decided<SequenceEnded>().empty());  // the rank that left has made it
  root.hear(Overdue{2, {0, kSequence, 6}, 0});
  const auto ended = root.decided<SequenceEnded>();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].last, 5U);
  EXPECT_EQ(ended[0].code, ErrorCode::rank_lost);
  EXPECT_EQ(ended[0].message, "rank 1 has shut down and will not submit unnamed call number 6.");
  root.calls(1, 4);  // one too many
  const auto batches = root.decided<SequenceAppended>();
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].calls, 3U);
}

/// A rank that has not made a call which the others have contributes nothing, and is told what it is.
TEST(SequenceSequencer, RunsWithoutTheRanksThatHaveJoined) {
  Root root;
  root.hear(Joined{2, 0, 0, 0, {}, 3, false, 3});
  EXPECT_EQ(root.decided<RankJoined>().at(0).sequence, 3U);
  root.calls(1, 5);
  const auto batches = root.decided<SequenceAppended>();
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].calls, 3U);
  EXPECT_TRUE(batches[0].repeats.empty());
  EXPECT_EQ(batches[1].calls, 2U);
  ASSERT_EQ(batches[1].repeats.size(), 1U);
  EXPECT_EQ(batches[1].repeats[0].count, 2U);
  EXPECT_EQ(batches[1].repeats[0].signature, *allreduce_of(1));
  root.hear(Joined{0, 0, 2, 0, {}, 8, false, 7});
  root.hear(Joined{1, 0, 2, 0, {}, 5, false, 5});
  EXPECT_TRUE(root.decided<JoinEnded>().empty());  // two calls of rank 0 are on their way
  root.calls(1, 2);
  EXPECT_EQ(root.decided<JoinEnded>().at(0).calls, 8U) << "the last of rank 0 has avoided the log";
}

// ---------------------------------------------------------------- a rank

std::vector<Action> read(Participant& participant, const LogEntry& entry) {
  std::vector<Action> actions;
  participant.on_log(entry, actions);
  return actions;
}

TEST(SequenceParticipant, SaysAPassOfCallsAtOnce) {
  Participant participant(0, 2);
  const SignaturePtr one = allreduce_of(1);
  for (core::Round number = 1; number <= 100; ++number) participant.call(0, one, number);
  ASSERT_EQ(participant.outbox().messages.size(), 1U);
  participant.outbox() = {};
  EXPECT_EQ(only<RunCalls>(read(participant, SequenceAppended{0, 60})).calls, 60U);
  EXPECT_EQ(only<FailCall>(read(participant, SequenceFailed{0, 61, ErrorCode::mismatch, "because"})).status.message(),
            "because");
  EXPECT_THROW(read(participant, SequenceAppended{0, 40}), Error);  // one too many
}

TEST(SequenceParticipant, FailsWhatComesBehindTheEnd) {
  Participant participant(0, 3);
  const SignaturePtr one = allreduce_of(1);
  participant.call(0, one, 1, 6);
  participant.outbox() = {};
  EXPECT_TRUE(read(participant, RankDeparted{1}).empty());
  ASSERT_EQ(participant.outbox().messages.size(), 1U);
  EXPECT_EQ(std::get<Overdue>(participant.outbox().messages[0]).request.round, 6U);
  participant.outbox() = {};
  EXPECT_EQ(only<FailLastCalls>(read(participant, SequenceEnded{0, 4, ErrorCode::rank_lost, "it left"})).last, 4U);
  EXPECT_EQ(read(participant, SequenceAppended{0, 4}).size(), 1U);
  // One more is asked about, and not said.
  participant.call(0, one, 7);
  ASSERT_EQ(participant.outbox().messages.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Overdue>(participant.outbox().messages[0]));
}

TEST(SequenceParticipant, MakesManyCallsAtOnceAsOneByOne) {
  Participant participant(0, 3);
  const SignaturePtr one = allreduce_of(1);
  participant.call(0, one, 1, 1000);
  participant.call(0, allreduce_of(2), 1001, 2);
  EXPECT_EQ(participant.counters().called, 1002U);
  ASSERT_EQ(participant.outbox().messages.size(), 1U);
  const auto grown = std::get<SequenceGrown>(participant.outbox().messages[0]);
  ASSERT_EQ(grown.repeats.size(), 2U);
  EXPECT_EQ(grown.repeats[0].count, 1000U);
  EXPECT_EQ(grown.repeats[1].count, 2U);
  // Another rank has made two more, and has left: of five more calls two are said.
  participant.outbox() = {};
  EXPECT_TRUE(read(participant, SequenceEnded{0, 1004, ErrorCode::rank_lost, "it left"}).empty());
  participant.call(0, one, 1003, 5);
  ASSERT_EQ(participant.outbox().messages.size(), 1U);
  const auto& last = std::get<SequenceGrown>(participant.outbox().messages[0]);
  ASSERT_EQ(last.repeats.size(), 1U);
  EXPECT_EQ(last.repeats[0].count, 2U);
  participant.outbox() = {};
  participant.call(0, one, 1008, 3);
  EXPECT_TRUE(participant.outbox().messages.empty()) << "none of them can run";
}

/// Calls that have avoided the log count, and are not said.
TEST(SequenceParticipant, PassesOverCallsThatHaveAvoidedTheLog) {
  Participant participant(0, 2);
  const SignaturePtr one = allreduce_of(1);
  participant.call(0, one, 4);
  EXPECT_EQ(std::get<SequenceGrown>(participant.outbox().messages.at(0)).first, 4U);
  participant.outbox() = {};
  EXPECT_EQ(read(participant, SequenceAppended{0, 1}).size(), 1U);
  participant.call(0, one, 7, 2);
  EXPECT_EQ(std::get<SequenceGrown>(participant.outbox().messages.at(0)).first, 7U);
  participant.outbox() = {};
  EXPECT_EQ(read(participant, SequenceFailed{0, 7, ErrorCode::mismatch, "because"}).size(), 1U);
  EXPECT_EQ(read(participant, SequenceAppended{0, 1}).size(), 1U);
  participant.pass(0, 12);
  participant.leave();
  const Departed left = participant.outbox().departed.value_or(Departed{});
  ASSERT_EQ(left.sequences.size(), 1U);
  EXPECT_EQ(left.sequences[0].calls, 12U);
}

/// `Joined` says what the log will have of this rank, and what the next number must be beyond.
TEST(SequenceParticipant, JoinsBehindCallsThatHaveAvoidedTheLog) {
  Participant participant(1, 2);
  const SignaturePtr one = allreduce_of(1);
  participant.call(0, one, 1);
  EXPECT_EQ(read(participant, SequenceAppended{0, 1}).size(), 1U);
  static_cast<void>(participant.join(0, 5, false));
  const auto& joined = std::get<Joined>(participant.outbox().messages.back());
  EXPECT_EQ(joined.sequence, 1U);
  EXPECT_EQ(joined.calls, 5U);
  EXPECT_TRUE(read(participant, RankJoined{0, 1, {}, false, 1}).empty());
  EXPECT_TRUE(read(participant, SequenceFailed{0, 6, ErrorCode::mismatch, "because"}).empty());
  EXPECT_TRUE(read(participant, RankJoined{0, 0, {}, false, 6}).empty());
  const std::vector<Action> actions = read(participant, JoinEnded{0, 0, 0, ErrorCode::ok, {}, 8});
  EXPECT_EQ(std::get<JoinDone>(actions.at(0)).calls, 8U);
  participant.outbox() = {};
  participant.call(0, one, 9);
  EXPECT_EQ(std::get<SequenceGrown>(participant.outbox().messages.at(0)).first, 9U);
}

TEST(SequenceParticipant, CountsAlongWhileItIsAbsent) {
  Participant participant(1, 2);
  const SignaturePtr one = allreduce_of(1);
  participant.call(0, one, 1);
  static_cast<void>(participant.join(0, 0, false));
  ASSERT_EQ(participant.outbox().messages.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<SequenceGrown>(participant.outbox().messages[0]));
  EXPECT_EQ(std::get<Joined>(participant.outbox().messages[1]).sequence, 1U);
  participant.outbox() = {};
  EXPECT_TRUE(read(participant, RankJoined{0, 1, {}, false, 1}).empty());
  std::vector<Action> actions = read(participant, SequenceAppended{0, 1});
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_TRUE(std::get<RunCalls>(actions[0]).absent.empty());
  EXPECT_EQ(only<RunCalls>(read(participant, SequenceAppended{0, 2, {{2, *one}}})).absent,
            (std::vector<std::int32_t>{1}));
  EXPECT_TRUE(read(participant, SequenceFailed{0, 4, ErrorCode::mismatch, "because"}).empty());
  EXPECT_TRUE(read(participant, RankJoined{0, 0, {}, false, 4}).empty());
  EXPECT_EQ(read(participant, JoinEnded{0, 0, 0, ErrorCode::ok, {}, 4}).size(), 2U);
  participant.outbox() = {};
  participant.call(0, one, 5);
  EXPECT_EQ(std::get<SequenceGrown>(participant.outbox().messages.at(0)).first, 5U);
}

}  // namespace
}  // namespace kolo::control
