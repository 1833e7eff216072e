// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/protocol.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "network.hpp"
#include "tests/support/random.hpp"

namespace kolo::p2p {
namespace {

constexpr auto kSend = Message::Role::send;
constexpr auto kReceive = Message::Role::receive;

/// Sizes around every border: nothing, short, the longest that is sent whole, and several parts.
const std::size_t kSizes[] = {0, 1, 8, 9, 1000, kWholeBytes, kWholeBytes + 1, 50000};

enum class Course { sent, read };
class Every : public ::testing::TestWithParam<Course> {
 protected:
  [[nodiscard]] static Network::Shape shape(int ranks = 2) {
    return {ranks, 2, 8000, GetParam() == Course::read, 20000};
  }
};
std::string name_of(const ::testing::TestParamInfo<Course>& info) {
  return info.param == Course::sent ? "Sent" : "Read";
}
INSTANTIATE_TEST_SUITE_P(Course, Every, ::testing::Values(Course::sent, Course::read), name_of);

TEST_P(Every, EverySizeArrivesWhicheverComesFirst) {
  for (const std::size_t bytes : kSizes) {
    for (const bool send_first : {true, false}) {
      Network network(shape());
      Letter send(kSend, 1, 7, bytes, std::byte{0x5A});
      Letter receive(kReceive, 0, 7, bytes + 3);
      if (send_first) network.start(0, send);
      network.start(1, receive);
      if (!send_first) network.start(0, send);
      network.settle();
      ASSERT_TRUE(send.done() && receive.done()) << bytes << send_first;
      EXPECT_TRUE(send.message.status.ok() && receive.message.status.ok());
      EXPECT_EQ(receive.message.source, 0);
      EXPECT_EQ(receive.message.received_tag, 7);
      EXPECT_EQ(receive.message.received_bytes, bytes);
      EXPECT_EQ(std::count(receive.memory.begin(), receive.memory.end(), std::byte{0x5A}),
                static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(network.under_way(), 0U);
      EXPECT_EQ(network.permits(), 0U);
      EXPECT_FALSE(network[0].is_busy() || network[1].is_busy());
    }
  }
}

TEST(Protocol, AShortSendIsDoneBeforeItsReceiveALongOneIsNot) {
  Network network({});
  Letter whole(kSend, 1, 0, kWholeBytes);
  Letter announced(kSend, 1, 0, kWholeBytes + 1);
  network.start(0, whole, announced);
  network.settle();
  EXPECT_TRUE(whole.done());
  EXPECT_FALSE(announced.done());
}

TEST(Protocol, AShortSendThatCannotBeDoneAtOnceIsNotBegun) {
  Network network({2, 2, 8000});
  const auto letter = [](std::size_t bytes, int to) { return std::make_unique<Letter>(kSend, to, 0, bytes); };
  EXPECT_FALSE(network[0].try_send(letter(kWholeBytes + 1, 1)->message)) << "too long";
  EXPECT_FALSE(network[0].try_send(letter(10, 0)->message)) << "to oneself";
  EXPECT_TRUE(network[0].try_send(letter(10, 1)->message));
  EXPECT_TRUE(network[0].try_send(letter(11, 1)->message));
  EXPECT_FALSE(network[0].try_send(letter(12, 1)->message)) << "no room";
  Letter waits(kSend, 1, 0, 13);
  network.start(0, waits);
  Letter first(kReceive, 0, 0, 100);
  network.start(1, first);
  network.step(1);
  EXPECT_FALSE(network[0].try_send(letter(14, 1)->message)) << "another one is before it";
  network.settle();
  EXPECT_TRUE(network[0].try_send(letter(15, 1)->message));
  EXPECT_EQ(network[0].open().counters().sent, 4U);
  EXPECT_FALSE(network[0].is_busy());
  network.settle();
  for (const std::uint64_t bytes : {11, 13, 15}) {
    Letter receive(kReceive, 0, 0, 100);
    network.start(1, receive);
    EXPECT_EQ(receive.message.received_bytes, bytes);
  }
  network[0].close(Status(ErrorCode::rank_lost, "rank 1 is gone"));
  EXPECT_FALSE(network[0].try_send(letter(16, 1)->message));
}

/// Its memory goes with the call: the protocol knows it no more, and the other side does not wait for it.
TEST_P(Every, AMessageThatCannotBeginForWantOfMemoryIsOver) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{50000}}) {
    Network network(shape());
    auto lost = std::make_unique<Letter>(kSend, 1, 7, bytes);
    network.puts_without_memory = 1;
    EXPECT_THROW(network[0].start(lost->message), std::bad_alloc);
    EXPECT_EQ(lost->message.status.code(), ErrorCode::out_of_memory);
    EXPECT_FALSE(network[0].is_busy());
    lost.reset();
    Letter send(kSend, 1, 7, 50000);
    network.start(0, send);
    network.settle();
    lost = std::make_unique<Letter>(kReceive, 0, 7, 50000);
    if (GetParam() == Course::read) continue;  // the receiver says nothing at the begin
    network.puts_without_memory = 1;
    EXPECT_THROW(network[1].start(lost->message), std::bad_alloc);
    EXPECT_EQ(lost->message.status.code(), ErrorCode::out_of_memory);
    lost.reset();
    network.settle();
    EXPECT_FALSE(network[0].is_busy() || network[1].is_busy());
    EXPECT_FALSE(send.message.status.ok());
  }
}

TEST(Protocol, GivesUpNothingThatHasNotBegun) {
  Network network({});
  Letter fresh(kReceive, 0, 7, 8);
  Letter open(kReceive, 0, 7, 8);
  network.start(1, open);
  network[1].give_up(fresh.message, Status(ErrorCode::out_of_memory, "not this one"));
  EXPECT_FALSE(fresh.done() || open.done());
  EXPECT_EQ(network[1].open().all().size(), 1U);
}

/// Short messages of 100 bytes, which nobody asks for.
class Flood {
 public:
  Flood(Network& network, int from, int to) : network_(network), from_(from), to_(to) {}
  /// Until so many are sent, or the channel takes no more; how many have been.
  std::size_t send(std::size_t most) {
    for (; sent_ < most; ++sent_) {
      letters_.push_back(std::make_unique<Letter>(kSend, to_, 7, 100));
      network_[from_].start(letters_.back()->message);
      for (int step = 0; step < 4 && !letters_.back()->message.done(); ++step) network_.step(to_), network_.step(from_);
      if (!letters_.back()->message.done()) break;
    }
    return sent_;
  }
  [[nodiscard]] const Letter& last() const { return *letters_.back(); }

 private:
  Network& network_;
  const int from_;
  const int to_;
  std::size_t sent_ = 0;
  std::vector<std::unique_ptr<Letter>> letters_;
};

/// What is kept of one message of the flood.
std::uint64_t cost_of_one() {
  Arrival arrival{{}, 0, std::make_unique<std::byte[]>(1), nullptr};
  arrival.frame.bytes = 100;
  return arrival.cost();
}

Network::Shape limited(std::size_t of_rank, std::size_t of_all) {
  Network::Shape shape{3};
  shape.limits = {of_rank * cost_of_one(), of_all * cost_of_one()};
  return shape;
}

TEST(Protocol, AReceiverLeavesMessagesInTheChannelThatNobodyAsksFor) {
  Network network(limited(10, 1000));
  Letter other(kReceive, 2, 7, 100);  // of a rank that sends nothing yet
  network.start(0, other);
  Flood flood(network, 1, 0);
  EXPECT_EQ(flood.send(100), 12U) << "10 that are kept, 2 that are in the channel";
  EXPECT_FALSE(flood.last().message.done());
  // What is kept can be had, and then the channel moves on.
  for (int i = 0; i < 12; ++i) {
    Letter letter(kReceive, 1, 7, 100);
    network.start(0, letter);
    network.settle();
    EXPECT_TRUE(letter.done());
  }
  EXPECT_TRUE(flood.last().message.done());
  Letter late(kSend, 0, 7, 100);
  network.start(2, late);
  network.settle();
  EXPECT_TRUE(other.done()) << "of the others it takes all";
}

TEST(Protocol, WhatAReceiveAsksForIsFoundBehindMessagesThatNobodyAsksFor) {
  for (const int from : {1, kAny}) {
    Network network(limited(10, 1000));
    Letter wanted(kReceive, from, 8, 100);
    network.start(0, wanted);
    Flood flood(network, 1, 0);
    ASSERT_EQ(flood.send(500), 500U);
    Letter letter(kSend, 0, 8, 100);
    network.start(1, letter);
    network.settle();
    EXPECT_TRUE(wanted.succeeded());
  }
}

/// Two ranks that send to each other, long messages and short ones, do not wait for each other's receives.
TEST(Protocol, AnAnswerIsFoundBehindMessagesThatNobodyAsksFor) {
  Network network(limited(10, 1000));
  Letter send(kSend, 1, 9, 50000);
  Letter receive(kReceive, 0, 9, 50000);
  network.start(0, send);
  Flood flood(network, 1, 0);
  ASSERT_EQ(flood.send(100), 100U);
  network.start(1, receive);
  network.settle();
  EXPECT_TRUE(send.done() && receive.done());
}

TEST(Protocol, ARankThatHasLeftIsHeardToItsEnd) {
  Network network(limited(10, 1000));
  Letter other(kReceive, 2, 7, 100);
  network.start(0, other);
  Flood flood(network, 1, 0);
  ASSERT_EQ(flood.send(12), 12U);
  network[0].on_departed(1, base::Time::min());
  EXPECT_EQ(network.under_way(), 0U);
}

TEST(Protocol, NobodyKeepsMessagesWithoutEnd) {
  Network network(limited(10, 50));
  Letter wanted(kReceive, 1, 8, 100);
  network.start(0, wanted);
  Flood flood(network, 1, 0);
  try {
    flood.send(100);
    FAIL() << "all were kept";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_EQ(error.status().message(),
              "rank 1 has sent 51 messages for which this rank has no receive; with those of others they take 0 MiB, "
              "which is the most that is kept: receive messages while they come, or have the sender wait for an answer "
              "now and then");
  }
}

TEST(Protocol, NobodyKeepsItsOwnMessagesWithoutEnd) {
  Network network(limited(10, 50));
  for (int i = 0; i < 52; ++i) {
    Letter letter(kSend, 0, 7, 100);
    network.start(0, letter);
    EXPECT_TRUE(letter.done());
    EXPECT_EQ(letter.message.status.ok(), i < 50) << i;
  }
}

TEST(Protocol, ToOneself) {
  for (const std::size_t bytes : kSizes) {
    for (const bool send_first : {true, false}) {
      Network network({1});
      Letter send(kSend, 0, 7, bytes, std::byte{0x5A});
      Letter receive(kReceive, kAny, kAny, bytes);
      if (send_first) {
        network.start(0, send);
        EXPECT_EQ(send.done(), bytes <= kWholeBytes);
      }
      network.start(0, receive);
      if (!send_first) network.start(0, send);
      ASSERT_TRUE(send.done() && receive.done()) << bytes << send_first;
      EXPECT_EQ(receive.memory, send.memory);
      EXPECT_FALSE(network[0].is_busy());
    }
  }
}

/// It keeps its place in the order, however short it is, and goes as its data comes.
TEST_P(Every, ALateSendIsMatchedAtItsCall) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{50000}}) {
    Network network(shape());
    Letter late(kSend, 1, 7, bytes, std::byte{0x5A});
    Letter next(kSend, 1, 7, bytes, std::byte{0x66});
    Letter first(kReceive, 0, 7, bytes);
    Letter second(kReceive, 0, 7, bytes);
    late.message.is_late = true;
    network.start(0, late, next);
    network.start(1, first, second);
    network.settle();
    EXPECT_TRUE(second.done() && next.done()) << bytes;
    EXPECT_EQ(second.memory, next.memory);
    EXPECT_FALSE(late.done() || first.done()) << bytes;
    EXPECT_FALSE(network.step(0)) << "there is nothing to do";
    for (const std::size_t there : {bytes / 3, bytes / 2, bytes}) {
      if (there > late.message.there) network[0].provide(late.message, there);
      network.settle();
      EXPECT_EQ(first.message.moved, there) << bytes;
      EXPECT_EQ(first.done(), there == bytes) << bytes;
    }
    EXPECT_TRUE(late.succeeded() && first.message.status.ok());
    EXPECT_EQ(first.memory, late.memory);
    EXPECT_EQ(network.permits(), 0U);
    EXPECT_FALSE(network[0].is_busy() || network[1].is_busy());
  }
}

/// Who copies the data tells of more than its amount. A send that is done is gone, and nobody holds it any more.
TEST(Protocol, ALateSendEndsOnceHoweverOftenItIsSaidWhatIsThere) {
  constexpr std::size_t kBytes = 1000;
  for (const std::size_t there : {std::size_t{0}, std::size_t{300}}) {
    Network network({2});
    auto send = std::make_unique<Letter>(kSend, 1, 7, kBytes, std::byte{0x5A});
    Letter receive(kReceive, 0, 7, kBytes);
    send->message.is_late = true;
    network[0].start(send->message);
    network.start(1, receive);
    network[0].provide(send->message, there);
    network.settle();
    ASSERT_EQ(receive.message.moved, there);
    network[0].provide(send->message, there);
    EXPECT_FALSE(network[0].has_unsent()) << "there is nothing to do";
    network[0].provide(send->message, kBytes);
    EXPECT_TRUE(network.step(0));
    ASSERT_TRUE(send->done()) << there;
    EXPECT_FALSE(network[0].is_busy()) << there;
    send.reset();
    network.settle();
    EXPECT_TRUE(receive.succeeded());
    EXPECT_EQ(receive.memory, std::vector<std::byte>(kBytes, std::byte{0x5A}));
  }
}

TEST(Protocol, ALateSendToOneselfEndsWithItsData) {
  Network network({1});
  Letter send(kSend, 0, 7, 100, std::byte{0x5A});
  Letter receive(kReceive, 0, 7, 100);
  send.message.is_late = true;
  network.start(0, send, receive);
  network[0].provide(send.message, 60);
  EXPECT_FALSE(send.done() || receive.done());
  network[0].provide(send.message, 100);
  EXPECT_TRUE(send.done() && receive.done());
  EXPECT_EQ(receive.memory, send.memory);

  for (const bool sender_gives_up : {true, false}) {
    Letter again(kSend, 0, 7, 100);
    Letter into(kReceive, kAny, kAny, 100);
    again.message.is_late = true;
    network.start(0, into, again);
    network[0].give_up(sender_gives_up ? again.message : into.message, Status(ErrorCode::expired, "too late"));
    ASSERT_TRUE(again.done() && into.done());
    const Status& other = sender_gives_up ? into.message.status : again.message.status;
    EXPECT_EQ(other.message(),
              sender_gives_up ? "recv of up to 100 elements of uint8 from any rank with any tag: rank 0 has given up "
                                "its send before all the data had come"
                              : "send of 100 elements of uint8 to rank 0 with tag 7: rank 0 has given up its receive "
                                "before all the data had come");
  }
  EXPECT_FALSE(network[0].is_busy());
}

TEST_P(Every, WhatDoesNotFitIsToldOnBothSides) {
  Network network(shape());
  Letter send(kSend, 1, 7, 40000);
  Letter receive(kReceive, kAny, kAny, 16);
  send.message.dtype = receive.message.dtype = DType::float32;
  network.start(0, send);
  network.start(1, receive);
  network.settle();
  EXPECT_EQ(receive.message.status.code(), ErrorCode::mismatch);
  EXPECT_EQ(
      receive.said(),
      "recv of up to 4 elements of float32 from any rank with any tag: the message from rank 0 with tag 7 has 10000 "
      "elements; give room for as many");
  EXPECT_EQ(send.message.status.code(), ErrorCode::mismatch);
  EXPECT_EQ(send.said(), "send of 10000 elements of float32 to rank 1 with tag 7: its receive has room "
                         "for 4 elements; give room for as many as are sent");
  EXPECT_EQ(network.permits(), 0U);
}

TEST_P(Every, AnotherTypeIsToldOnBothSides) {
  Network network(shape());
  Letter send(kSend, 1, 7, 40000);
  Letter receive(kReceive, 0, 7, 40000);
  send.message.dtype = DType::float32;
  receive.message.dtype = DType::int64;
  network.start(1, receive);
  network.start(0, send);
  network.settle();
  EXPECT_EQ(receive.said(),
            "recv of up to 5000 elements of int64 from rank 0 with tag 7: the message from rank 0 with tag 7 is of "
            "float32; send and receive the same type");
  EXPECT_EQ(send.said(), "send of 10000 elements of float32 to rank 1 with tag 7: its receive is of "
                         "int64; send and receive the same type");
}

TEST(Protocol, RanksAreNamedAsTheirGroupDoes) {
  const std::vector<int> members{1, 0};
  const std::string group = "the group of ranks 0 and 1";
  Network network({});
  Letter send(kSend, 1, 7, 8);
  Letter receive(kReceive, 0, 7, 4);
  send.message.set = receive.message.set = 3;
  send.message.members = receive.message.members = &members;
  send.message.group = receive.message.group = &group;
  network.start(1, receive);
  network.start(0, send);
  network.settle();
  EXPECT_TRUE(send.message.status.ok()) << "it was sent whole, and done";
  EXPECT_EQ(receive.said(),
            "recv of up to 4 elements of uint8 from rank 1 with tag 7 in the group of ranks 0 and 1: the message from "
            "rank 1 with tag 7 has 8 elements; give room for as many");
}

TEST(Protocol, AReceiveIsCancelledUnlessItHasAMessage) {
  Network network({});
  Letter first(kReceive, 0, 7, 100000);
  Letter second(kReceive, 0, 7, 100000);
  Letter send(kSend, 1, 7, 100000);
  network.start(1, first, second);
  EXPECT_TRUE(network[1].cancel(first.message));
  EXPECT_FALSE(network[1].cancel(first.message));
  EXPECT_EQ(first.said(), "recv of up to 100000 elements of uint8 from rank 0 with tag 7: it was cancelled");
  EXPECT_EQ(first.message.status.code(), ErrorCode::cancelled);
  network.start(0, send);
  network.step(1);
  EXPECT_EQ(second.message.state, Message::State::moving);
  EXPECT_FALSE(network[1].cancel(second.message));
  network.settle();
  EXPECT_TRUE(second.succeeded());
}

/// At every moment of a message, on either side.
TEST_P(Every, WhatIsGivenUpEndsTheOtherSide) {
  for (const bool sender : {true, false}) {
    for (int moment = 0; moment < 12; ++moment) {
      Network network(shape());
      Letter send(kSend, 1, 7, 50000, std::byte{0x5A});
      Letter receive(kReceive, 0, 7, 50000);
      network.start(1, receive);
      network.start(0, send);
      for (int step = 0; step < moment; ++step) network.step(1 - step % 2);
      Message& given_up = sender ? send.message : receive.message;
      const Status status(ErrorCode::expired, "given up");
      const bool was_done = given_up.done();
      network[sender ? 0 : 1].give_up(given_up, status);
      EXPECT_TRUE(given_up.done());
      std::vector<std::byte>& memory = sender ? send.memory : receive.memory;
      if (!was_done || sender) std::fill(memory.begin(), memory.end(), std::byte{0});
      network.settle();
      if (!was_done && !sender) {
        EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), 50000) << "it is the caller's again";
      }
      EXPECT_EQ(network.under_way(), 0U);
      if (!sender && send.message.state == Message::State::announced) continue;  // it waits for another receive
      EXPECT_EQ(network.permits(), 0U);
      Message& other = sender ? receive.message : send.message;
      if (was_done) {
        EXPECT_TRUE(given_up.status.ok());
        EXPECT_TRUE(other.done() && other.status.ok());
        continue;
      }
      EXPECT_EQ(given_up.status.message(), "given up");
      if (other.state == Message::State::waiting) continue;  // it has not heard of the message, or has no other
      ASSERT_TRUE(other.done()) << sender << moment;
      if (sender && !other.status.ok()) {
        EXPECT_EQ(other.status.message(),
                  "recv of up to 50000 elements of uint8 from rank 0 with tag 7: rank 0 has given "
                  "up its send before all the data had come");
      } else if (sender) {
        EXPECT_EQ(std::count(receive.memory.begin(), receive.memory.end(), std::byte{0x5A}), 50000);
      }
      if (!sender && !other.status.ok()) {
        EXPECT_EQ(other.status.message(),
                  "send of 50000 elements of uint8 to rank 1 with tag 7: rank 1 has given up its "
                  "receive before all the data had come");
      }
    }
  }
}

Frame answer_to(const Letter& send, FrameKind kind) {
  Frame frame;
  frame.kind = kind;
  frame.id = send.message.id;
  return frame;
}

std::string refusal_of(Network& network, int rank) {
  try {
    network.step(rank);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    return error.status().message();
  }
  return "nothing";
}

TEST(Protocol, AnswersAreBelievedOfTheReceiverAlone) {
  for (const FrameKind kind : {FrameKind::wanted, FrameKind::taken, FrameKind::refused}) {
    Network network({3, 2, 8000, true});
    Letter send(kSend, 1, 7, 50000);
    network.start(0, send);
    network.forge(2, 0, answer_to(send, kind));
    EXPECT_EQ(refusal_of(network, 0), "rank 2 answered a message that was sent to rank 1");
    EXPECT_EQ(send.message.state, Message::State::announced);
    EXPECT_EQ(network.permits(), 1U);
  }
}

TEST(Protocol, WhatMayNotBeReadWasNotTaken) {
  Network network({});
  Letter send(kSend, 1, 7, 50000);
  network.start(0, send);
  network.forge(1, 0, answer_to(send, FrameKind::wanted));
  network.step(0);
  network.forge(1, 0, answer_to(send, FrameKind::taken));
  EXPECT_EQ(refusal_of(network, 0), "rank 1 says that it has read a message that it may not read");
  EXPECT_FALSE(send.done());
}

TEST(Protocol, MemoryThatCannotBeReadIsSent) {
  Network network({2, 2, 8000, true});
  network.memory_fails = true;
  Letter send(kSend, 1, 7, 50000, std::byte{0x5A});
  Letter receive(kReceive, 0, 7, 50000);
  network.start(1, receive);
  network.start(0, send);
  network.settle();
  EXPECT_TRUE(send.message.status.ok() && receive.message.status.ok() && receive.done());
  EXPECT_EQ(receive.memory, send.memory);
  EXPECT_EQ(network.permits(), 0U);
}

TEST(Protocol, ADeadlineEndsAMessageAndNamesTheCycle) {
  Network network({3});
  const base::Time begun = base::now();
  std::vector<std::unique_ptr<Letter>> sends;
  for (int rank = 0; rank < 3; ++rank) {
    sends.push_back(std::make_unique<Letter>(kSend, (rank + 1) % 3, 0, 100000));
    Message& send = sends.back()->message;
    send.begun = begun;
    send.patience = std::chrono::milliseconds(200);
    send.deadline = begun + send.patience;
    network[rank].start(send);
  }
  network.settle();
  for (int rank = 0; rank < 3; ++rank) network[rank].open().note_wait();
  EXPECT_EQ(network[0].open().next_due(), sends[0]->message.deadline);
  network[0].expire(begun + std::chrono::milliseconds(199));
  EXPECT_FALSE(sends[0]->message.done());
  network[0].expire(begun + std::chrono::milliseconds(200));
  EXPECT_EQ(sends[0]->message.status.code(), ErrorCode::expired);
  EXPECT_EQ(
      sends[0]->message.status.message(),
      "send of 100000 elements of uint8 to rank 1 with tag 0: rank 1 has not received it within 0.2 s. Ranks of the "
      "world wait for each other: rank 0 for rank 1, rank 1 for rank 2, rank 2 for rank 0; let one of them receive "
      "first, or use sendrecv or send_async");
  EXPECT_EQ(network[0].open().next_due(), base::Time::max());

  Letter receive(kReceive, kAny, 3, 4);
  receive.message.patience = std::chrono::seconds(2);
  receive.message.deadline = begun + receive.message.patience;
  network.start(0, receive);
  network[0].expire(receive.message.deadline);
  EXPECT_EQ(receive.said(),
            "recv of up to 4 elements of uint8 from any rank with tag 3: no message that fits has come within 2 s");
}

TEST(Protocol, AMessageThatWaitsLongIsWarnedOfOnce) {
  Network network({3});
  const base::Time begun = base::now();
  Letter send(kSend, 1, 0, 100000), receive(kReceive, 2, 3, 4), any(kReceive, kAny, kAny, 4);
  for (Letter* letter : {&send, &receive, &any}) {
    letter->message.begun = begun;
    letter->message.warn_at = begun + std::chrono::seconds(2);
    letter->message.deadline = begun + std::chrono::seconds(10);
    network[0].start(letter->message);
  }
  EXPECT_EQ(network[0].open().next_due(), begun + std::chrono::seconds(2));
  network[0].expire(begun + std::chrono::milliseconds(1999));
  EXPECT_EQ(network[0].warnings(), std::vector<std::string>{});
  network[0].expire(begun + std::chrono::milliseconds(2001));
  const std::vector<std::string> wanted{
      "send of 100000 elements of uint8 to rank 1 with tag 0 has waited for 2 s: rank 1 has not received it. Either "
      "rank 1 is slow, or the program does not receive it there.",
      "recv of up to 4 elements of uint8 from rank 2 with tag 3 has waited for 2 s: no message that fits has come. "
      "Either rank 2 is slow, or the program does not send it there.",
      "recv of up to 4 elements of uint8 from any rank with any tag has waited for 2 s: no message that fits has come. "
      "Either another rank is slow, or the program does not send it."};
  EXPECT_EQ(network[0].warnings(), wanted);
  network[0].expire(begun + std::chrono::seconds(5));
  EXPECT_EQ(network[0].warnings(), wanted);
  EXPECT_EQ(network[0].open().next_due(), begun + std::chrono::seconds(10));
}

TEST(Protocol, WhoWaitsNoMoreIsInNoCycle) {
  Network network({});
  Letter first(kReceive, 1, 0, 4), answer(kSend, 0, 0, 4), second(kReceive, 0, 0, 4);
  network.start(0, first);
  network[0].open().note_wait();
  network.start(1, answer);
  network.settle();
  ASSERT_TRUE(first.done());
  second.message.patience = std::chrono::seconds(2);
  second.message.deadline = base::now();
  network.start(1, second);
  network[1].expire(second.message.deadline);
  EXPECT_EQ(second.said(),
            "recv of up to 4 elements of uint8 from rank 0 with tag 0: no message that fits has come within 2 s");
}

TEST(Protocol, AMessageThatIsUnderWayForLongIsWarnedOf) {
  Network network({2, 1});
  Letter send(kSend, 1, 7, 50000), receive(kReceive, kAny, kAny, 50000);
  for (Letter* letter : {&send, &receive}) letter->message.warn_at = letter->message.begun + std::chrono::seconds(60);
  network.start(1, receive);
  network.start(0, send);
  network.step(1);
  network.step(0);
  for (const int rank : {0, 1}) network[rank].expire(send.message.begun + std::chrono::seconds(60));
  EXPECT_EQ(network[0].warnings(),
            std::vector<std::string>{"send of 50000 elements of uint8 to rank 1 with tag 7 has waited for 60 s: its "
                                     "data has not gone whole. Either rank 1 is slow, or its process is stopped."});
  EXPECT_EQ(network[1].warnings(),
            std::vector<std::string>{"recv of up to 50000 elements of uint8 from any rank with any tag has waited for "
                                     "60 s: its data has not come whole. Either rank 0 is slow, or its process is "
                                     "stopped."});
}

TEST(Protocol, ARingOfReceivesIsNamedWithWhatToDo) {
  Network network({3});
  const base::Time begun = base::now();
  std::vector<std::unique_ptr<Letter>> receives;
  for (int rank = 0; rank < 3; ++rank) {
    receives.push_back(std::make_unique<Letter>(kReceive, (rank + 1) % 3, 0, 4));
    Message& receive = receives.back()->message;
    receive.begun = begun;
    receive.patience = std::chrono::milliseconds(200);
    receive.deadline = begun + receive.patience;
    receive.warn_at = begun + std::chrono::milliseconds(100);
    network[rank].start(receive);
  }
  for (int rank = 0; rank < 3; ++rank) network[rank].open().note_wait();
  network[2].expire(begun + std::chrono::milliseconds(100));
  EXPECT_EQ(network[2].warnings(),
            std::vector<std::string>{
                "recv of up to 4 elements of uint8 from rank 0 with tag 0 has waited for 0.1 s: no message that fits "
                "has come. Ranks of the world wait for each other: rank 2 for rank 0, rank 0 for rank 1, rank 1 for "
                "rank 2; let one of them send first, or use sendrecv or recv_async."});
  network[1].expire(begun + std::chrono::milliseconds(200));
  EXPECT_EQ(receives[1]->message.status.message(),
            "recv of up to 4 elements of uint8 from rank 2 with tag 0: no message that fits has come within 0.2 s. "
            "Ranks of the world wait for each other: rank 1 for rank 2, rank 2 for rank 0, rank 0 for rank 1; let one "
            "of them send first, or use sendrecv or recv_async");
}

TEST(Protocol, WhoHasLeftSendsAndReceivesNothingMore) {
  for (const bool here : {true, false}) {
    Network network({3});
    const base::Time until = here ? base::Time::min() : base::now();
    Letter early(kSend, 0, 7, 4);
    Letter from_left(kReceive, 1, 7, 4), again(kReceive, 1, 7, 4), any(kReceive, kAny, 8, 4),
        to_left(kSend, 1, 0, 99999);
    network.start(0, from_left, again, any, to_left);
    network.start(1, early);
    network[0].on_departed(1, until);
    network.settle();
    EXPECT_TRUE(from_left.succeeded()) << "what it has sent still comes";
    network[0].expire(base::now());
    EXPECT_EQ(again.message.status.code(), ErrorCode::rank_lost);
    EXPECT_EQ(again.said(), "recv of up to 4 elements of uint8 from rank 1 with tag 7: rank 1 has left the job");
    EXPECT_EQ(to_left.said(), "send of 99999 elements of uint8 to rank 1 with tag 0: rank 1 has left the job");
    EXPECT_FALSE(any.done());
    Letter late(kReceive, 1, 7, 4);
    network.start(0, late);
    EXPECT_EQ(late.message.status.code(), ErrorCode::rank_lost);
    network[0].on_departed(2, until);
    network[0].expire(base::now());
    EXPECT_FALSE(any.done()) << "this rank may send to itself";
    network[0].await(any.message);
    EXPECT_EQ(any.said(),
              "recv of up to 4 elements of uint8 from any rank with tag 8: all other ranks have left the job; the "
              "first was rank 1");
  }
}

/// Rank 2 has left; rank 1 gives up what it sends to rank 0, and what it receives from there, because of that.
TEST(Protocol, AMessageThatIsGivenUpBecauseARankHasLeftFailsAsOneOfThatRank) {
  Network network({3, 2, 1000});
  Letter send(kSend, 1, 7, 50000), receive(kReceive, 1, 8, 50000);
  Letter received(kReceive, 0, 7, 50000), sent(kSend, 0, 8, 50000);
  network.start(0, send, receive);
  network.start(1, received, sent);
  network.step(1);
  network.step(0);
  ASSERT_FALSE(send.done() || receive.done());
  const Status left(ErrorCode::rank_lost, "rank 2 has left the job");
  network[1].give_up(received.message, left, 2);
  network[1].give_up(sent.message, left, 2);
  network.settle();
  EXPECT_EQ(send.message.status.code(), ErrorCode::rank_lost);
  EXPECT_EQ(
      send.said(),
      "send of 50000 elements of uint8 to rank 1 with tag 7: rank 2 has left the job, and rank 1 has given up its "
      "receive because of that");
  EXPECT_EQ(
      receive.said(),
      "recv of up to 50000 elements of uint8 from rank 1 with tag 8: rank 2 has left the job, and rank 1 has given "
      "up its send because of that");
  EXPECT_EQ(send.message.deserted_by, 2);
  EXPECT_EQ(receive.message.deserted_by, 2);
  // Nor does the rank that gave them up blame its peer.
  EXPECT_EQ(received.message.deserted_by, 2);
  EXPECT_EQ(sent.message.deserted_by, 2);
}

TEST(Protocol, WhatExpiresNamesTheRankThatHasLeft) {
  Network network({3});
  Letter any(kReceive, kAny, 7, 4);
  const base::Time begun = base::now();
  any.message.begun = begun;
  any.message.patience = std::chrono::milliseconds(200);
  any.message.deadline = begun + any.message.patience;
  network.start(0, any);
  network[0].on_departed(2, base::Time::min());
  network[0].expire(begun + std::chrono::milliseconds(200));
  EXPECT_EQ(any.message.status.code(), ErrorCode::expired);
  EXPECT_EQ(any.said(),
            "recv of up to 4 elements of uint8 from any rank with tag 7: no message that fits has come within 0.2 s; "
            "meanwhile rank 2 has left the job");
}

/// It reads in the log that it has left itself, and its callbacks may still submit.
TEST(Protocol, WhoLeavesStillExchangesMessagesWithThoseWhoHaveNot) {
  Network network({3});
  Letter any(kReceive, kAny, 7, 4), to_itself(kSend, 0, 8, 99999), from_itself(kReceive, 0, 8, 99999);
  network.start(0, any, to_itself);
  network[0].on_departed(0, base::Time::min());
  network[0].on_departed(1, base::Time::min());
  EXPECT_FALSE(any.done() || to_itself.done());
  Letter late(kReceive, kAny, 7, 4);
  network.start(0, late, from_itself);
  Letter first(kSend, 0, 7, 4), second(kSend, 0, 7, 4);
  network.start(2, first, second);
  network.settle();
  for (const Letter* letter : {&any, &late, &to_itself, &from_itself}) {
    EXPECT_TRUE(letter->succeeded()) << letter->said();
  }
  Letter last(kReceive, kAny, 7, 4);
  network.start(0, last);
  network[0].await(last.message);
  network[0].on_departed(2, base::Time::min());
  EXPECT_EQ(last.said(),
            "recv of up to 4 elements of uint8 from any rank with tag 7: all other ranks have left the job; the first "
            "was rank 1");
}

TEST(Protocol, ReadsMessagesInTurns) {
  Network network({2, 2, 8000, true, 20000});
  Letter sends[] = {{kSend, 1, 7, 50000}, {kSend, 1, 8, 50000}};
  Letter receives[] = {{kReceive, 0, 7, 50000}, {kReceive, 0, 8, 50000}};
  for (Letter& receive : receives) network.start(1, receive);
  for (Letter& send : sends) network.start(0, send);
  const std::uint64_t moved[][2] = {{20000, 0}, {40000, 0}, {40000, 20000}, {50000, 30000}, {50000, 50000}};
  for (const auto& [first, second] : moved) {  // the second is announced in the second step
    network.step(1);
    EXPECT_EQ(receives[0].message.moved, first);
    EXPECT_EQ(receives[1].message.moved, second);
  }
  for (const Letter& receive : receives) EXPECT_TRUE(receive.done());
}

TEST(Protocol, WhoLeavesMayHaveTakenAMessageJustBefore) {
  Network network({2, 2, 8000, true});
  Letter send(kSend, 1, 7, 50000), receive(kReceive, 0, 7, 50000);
  network.start(1, receive);
  network.start(0, send);
  network.step(1);
  ASSERT_TRUE(receive.done());
  ASSERT_FALSE(send.done());
  network[0].on_departed(1, base::Time::min());
  EXPECT_TRUE(send.succeeded()) << send.said();
}

TEST(Protocol, WhoHasLeftIsAskedForNothingMore) {
  Network network({2, 1});
  Letter fills_the_channel(kSend, 0, 1, 4), send(kSend, 1, 7, 50000), receive(kReceive, kAny, kAny, 50000);
  network.start(1, fills_the_channel, receive);
  network.start(0, send);
  network.step(1);
  ASSERT_EQ(receive.message.state, Message::State::moving);
  network[1].on_departed(0, base::Time::min());
  EXPECT_EQ(receive.said(),
            "recv of up to 50000 elements of uint8 from any rank with any tag: rank 0 has left the job");
  EXPECT_FALSE(network[1].is_busy());
}

TEST(Protocol, AGroupThatIsGoneTakesItsMessagesAlong) {
  Network network({});
  network[1].on_set(3);
  network[1].on_set(4);
  Letter whole(kSend, 1, 0, 4), announced(kSend, 1, 0, 50000), late(kSend, 1, 0, 50000), other(kSend, 1, 0, 4);
  for (Letter* letter : {&whole, &announced, &late}) letter->message.set = 3;
  other.message.set = 4;
  network.start(0, whole, announced);
  network.settle();
  network[1].on_set_gone(3);
  network.start(0, late, other);
  network.settle();
  const std::string sentence =
      "send of 50000 elements of uint8 to rank 1 with tag 0: all ranks have dropped the group, and "
      "none has received it";
  EXPECT_EQ(announced.said(), sentence);
  EXPECT_EQ(late.said(), sentence);
  Letter receive(kReceive, kAny, kAny, 4);
  receive.message.set = 4;
  network.start(1, receive);
  EXPECT_TRUE(receive.done());
}

TEST_P(Every, TheEndFailsAllAndSaysNothing) {
  Network network(shape());
  Letter send(kSend, 1, 7, 50000), receive(kReceive, 1, 7, 4), after(kReceive, 1, 7, 4);
  network.start(0, send, receive);
  network[0].close(Status(ErrorCode::rank_lost, "rank 1 died"));
  EXPECT_EQ(send.said(), "rank 1 died");
  EXPECT_EQ(receive.said(), "rank 1 died");
  network.start(0, after);
  EXPECT_EQ(after.said(), "rank 1 died");
  EXPECT_EQ(network.permits(), 0U);
  EXPECT_FALSE(network[0].is_busy());
}

/// At every moment of a message: its sender hears first that the job has failed, or has left. That is no word about the
/// message, whose receiver hears the same a little later.
TEST_P(Every, ASenderThatEndsWithTheJobIsNoReason) {
  for (const bool leaves : {false, true}) {
    for (int moment = 0; moment < 12; ++moment) {
      Network network(shape());
      Letter send(kSend, 1, 7, 50000, std::byte{0x5A}), receive(kReceive, 0, 7, 50000);
      network.start(1, receive);
      network.start(0, send);
      for (int step = 0; step < moment; ++step) network.step(1 - step % 2);
      network[0].close(Status(ErrorCode::rank_lost, "rank 2 died"));
      std::fill(send.memory.begin(), send.memory.end(), std::byte{0});
      for (int step = 0; step < 5; ++step) network.step(1);
      if (receive.done()) {
        EXPECT_TRUE(receive.message.status.ok()) << receive.said();
        EXPECT_EQ(std::count(receive.memory.begin(), receive.memory.end(), std::byte{0x5A}), 50000);
        continue;
      }
      if (leaves) network[1].on_departed(0, base::Time::min());
      if (!receive.done()) network[1].close(Status(ErrorCode::rank_lost, "rank 2 died"));
      EXPECT_EQ(receive.message.status.code(), ErrorCode::rank_lost);
      EXPECT_EQ(network.permits(), 0U);
    }
  }
}

// ---------------------------------------------------------------- random programs

struct Stamp {
  int source = 0;
  int to = 0;
  std::int32_t tag = 0;
  int number = 0;  ///< of that source, receiver and tag
};

/// Every rank sends to every one, itself included, and receives as much, in any order, while channels of two frames
/// deliver when they like: all that is received is whole, messages of a pair and tag come in order, and all ends.
class RandomProgram : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgram, ::testing::Range(0, 300));

TEST_P(RandomProgram, OrderAndEnds) {
  kolo::testing::Random random = kolo::testing::random_of(91, static_cast<std::uint64_t>(GetParam()));
  const auto below = [&random](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  const int ranks = 1 + below(4);
  const bool reads = below(2) == 0;
  const auto room = 1 + static_cast<std::size_t>(below(3));
  Network network({ranks, room, 5000, reads, 1000 + static_cast<std::uint64_t>(below(40000))});
  // Only where all receives of a rank are exact, or none is, is everything received that is sent.
  const bool disturbs = below(3) == 0;
  std::vector<bool> exact;
  for (int rank = 0; rank < ranks; ++rank) exact.push_back(below(2) == 0);

  struct Call {
    int rank = 0;
    std::unique_ptr<Letter> letter;
  };
  std::vector<std::vector<Call>> programs(static_cast<std::size_t>(ranks));
  for (int source = 0; source < ranks; ++source) {
    std::vector<Call> sends;
    int numbers[4][3] = {};
    for (int i = 0; i < 12; ++i) {
      const Stamp stamp{source, below(ranks), below(3), 0};
      const std::size_t sizes[] = {sizeof(Stamp), 100, kWholeBytes, 20000, 30000};
      const std::size_t bytes = sizes[below(5)];
      auto letter = std::make_unique<Letter>(kSend, stamp.to, stamp.tag, bytes, static_cast<std::byte>(i));
      Stamp numbered = stamp;
      numbered.number = numbers[stamp.to][stamp.tag]++;
      std::memcpy(letter->memory.data(), &numbered, sizeof numbered);
      const bool one = exact[static_cast<std::size_t>(stamp.to)];
      auto receive = std::make_unique<Letter>(kReceive, one ? source : kAny, one ? stamp.tag : kAny, 30000);
      auto& theirs = programs[static_cast<std::size_t>(stamp.to)];
      theirs.insert(theirs.begin() + below(static_cast<int>(theirs.size()) + 1), {stamp.to, std::move(receive)});
      sends.push_back({source, std::move(letter)});
    }
    // In their order, anywhere among what there is.
    auto& own = programs[static_cast<std::size_t>(source)];
    std::size_t at = 0;
    for (Call& send : sends) {
      at += static_cast<std::size_t>(below(static_cast<int>(own.size() - at) + 1));
      own.insert(own.begin() + static_cast<std::ptrdiff_t>(at++), std::move(send));
    }
  }

  std::vector<std::size_t> started(static_cast<std::size_t>(ranks));
  const Status gave_up(ErrorCode::expired, "given up");
  for (bool any = true; any;) {
    any = false;
    for (int turn = 0; turn < 4 * ranks; ++turn) {
      const int rank = below(ranks);
      const auto at = static_cast<std::size_t>(rank);
      if (below(2) == 0 && started[at] < programs[at].size()) {
        Message& message = programs[at][started[at]++].letter->message;
        if (message.role == kSend && below(2) == 0 && network[rank].try_send(message)) {
          message.state = Message::State::done;
        } else {
          network[rank].start(message);
        }
      }
      if (disturbs && started[at] > 0 && below(20) == 0) {
        Message& one = programs[at][static_cast<std::size_t>(below(static_cast<int>(started[at])))].letter->message;
        if (one.role == kReceive && below(2) == 0) {
          network[rank].cancel(one);
        } else {
          network[rank].give_up(one, gave_up);
        }
      }
      network.step(rank);
    }
    for (std::size_t rank = 0; rank < programs.size(); ++rank) any |= started[rank] < programs[rank].size();
  }
  network.settle();
  for (int rank = 0; disturbs && rank < ranks; ++rank) {
    for (const Call& call : programs[static_cast<std::size_t>(rank)])
      network[rank].give_up(call.letter->message, gave_up);
    network.settle();
  }

  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_FALSE(network[rank].is_busy());
    int last[4][3];
    std::fill(&last[0][0], &last[0][0] + 12, -1);
    for (const Call& call : programs[static_cast<std::size_t>(rank)]) {
      const Message& message = call.letter->message;
      ASSERT_TRUE(message.done());
      ASSERT_TRUE(disturbs || message.status.ok()) << message.status.message();
      if (message.role == kSend || !message.status.ok()) continue;
      Stamp stamp;
      std::memcpy(&stamp, call.letter->memory.data(), sizeof stamp);
      ASSERT_EQ(stamp.source, message.source);
      ASSERT_EQ(stamp.to, rank);
      ASSERT_EQ(stamp.tag, message.received_tag);
      ASSERT_GT(stamp.number, last[stamp.source][stamp.tag]) << "messages of a pair and tag come in order";
      last[stamp.source][stamp.tag] = stamp.number;
      const auto begin = call.letter->memory.begin() + sizeof(Stamp);
      const auto end = call.letter->memory.begin() + static_cast<std::ptrdiff_t>(message.received_bytes);
      ASSERT_TRUE(begin == end || std::all_of(begin, end, [&](std::byte one) { return one == *begin; }));
    }
  }
  EXPECT_EQ(network.permits(), 0U);
}

}  // namespace
}  // namespace kolo::p2p
