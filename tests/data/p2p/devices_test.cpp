// SPDX-License-Identifier: Apache-2.0
//
// Messages of which both tensors lie on devices: the protocol matches, and says what both ranks have agreed on.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "network.hpp"

namespace kolo::p2p {
namespace {

constexpr auto kSend = Message::Role::send;
constexpr auto kReceive = Message::Role::receive;
constexpr std::size_t kBytes = 1000;

/// As the engine makes those of a device: its owner is known from the beginning.
struct DeviceLetter : Letter {
  DeviceLetter(Message::Role role, int peer, std::int32_t tag, std::byte fill = std::byte{0xEE})
      : Letter(role, peer, tag, kBytes, fill) {
    message.on_device = true;
    message.is_late = role == kSend;
    message.owner = this;
  }
  [[nodiscard]] bool is_for_device() const { return succeeded() && message.way == Way::device; }
};

News news_of(Protocol& protocol) {
  News news;
  protocol.take_news(news);
  return news;
}

void find_each_other(Network& network) {
  for (int rank = 0; rank < 2; ++rank) network[rank].on_found({0, 1});
}

TEST(ByTheDevices, TheFirstGoesByTheHostAndIntroducesThem) {
  Network network({2});
  DeviceLetter send(kSend, 1, 7, std::byte{0x5A}), receive(kReceive, 0, 7);
  network.start(0, send);
  network.start(1, receive);
  EXPECT_EQ(news_of(network[0]).late, std::vector<const Message*>{&send.message}) << "its data is needed at once";
  network.settle();
  const std::vector<Direction> direction{{0, 1}};
  EXPECT_EQ(news_of(network[0]).met, direction);
  EXPECT_EQ(news_of(network[1]).met, direction);
  EXPECT_FALSE(send.done() || receive.done());
  network[0].provide(send.message, kBytes);
  network.settle();
  EXPECT_TRUE(send.succeeded() && receive.succeeded());
  EXPECT_FALSE(send.is_for_device() || receive.is_for_device());
  EXPECT_EQ(receive.memory, send.memory);
}

TEST(ByTheDevices, NothingGoesThatWayUnlessBothLieOnDevicesThatHaveFoundEachOther) {
  for (const int lacks : {0, 1, 2, 3}) {  // the tensors of either side, what either knows
    Network network({2});
    if (lacks != 2) network[0].on_found({0, 1});
    if (lacks != 3) network[1].on_found({0, 1});
    DeviceLetter send(kSend, 1, 7, std::byte{0x5A}), receive(kReceive, 0, 7);
    send.message.on_device = lacks != 0;
    receive.message.on_device = lacks != 1;
    network.start(1, receive);
    network.start(0, send);
    network.settle();
    EXPECT_EQ(news_of(network[0]).late, std::vector<const Message*>{&send.message}) << lacks;
    network[0].provide(send.message, kBytes);
    network.settle();
    EXPECT_TRUE(send.succeeded() && receive.succeeded()) << lacks;
    EXPECT_FALSE(send.is_for_device() || receive.is_for_device()) << lacks;
    EXPECT_EQ(receive.memory, send.memory);
    EXPECT_EQ(news_of(network[1]).met.size(), lacks >= 2 ? 1U : 0U);
  }
}

TEST(ByTheDevices, ARankMeetsSoManyOthersAndNoMore) {
  const int peers = static_cast<int>(kMostDirectionsByDevice) + 1;
  Network network({peers + 1});
  for (int peer = 1; peer <= peers; ++peer) {
    for (int again = 0; again < 2; ++again) {
      DeviceLetter send(kSend, peer, 7), receive(kReceive, 0, 7);
      network.start(0, send);
      network.start(peer, receive);
      network.settle();
      EXPECT_EQ(news_of(network[peer]).met.size(), peer == peers ? 0U : 1U) << peer;
      network[0].provide(send.message, kBytes);
      network.settle();
      EXPECT_EQ(receive.memory, send.memory);
    }
  }
  EXPECT_EQ(news_of(network[0]).met.size(), 2 * kMostDirectionsByDevice);
}

/// In the order in which the receiver matches, which is neither that of the sends nor that of the receives.
TEST(ByTheDevices, BothSidesAgreeInOneOrder) {
  Network network({2, 1});
  find_each_other(network);
  DeviceLetter send_1(kSend, 1, 1), send_2(kSend, 1, 2), send_3(kSend, 1, 3);
  DeviceLetter receive_3(kReceive, 0, 3), receive_1(kReceive, 0, 1), receive_any(kReceive, 0, kAny);
  network.start(0, send_1, send_2, send_3);
  network.start(1, receive_3);
  network.settle();
  network.start(1, receive_1, receive_any);
  network.settle();
  const News sent = news_of(network[0]), received = news_of(network[1]);
  EXPECT_EQ(sent.done, (std::vector<Message*>{&send_3.message, &send_1.message, &send_2.message}));
  EXPECT_EQ(received.done, (std::vector<Message*>{&receive_3.message, &receive_1.message, &receive_any.message}));
  EXPECT_TRUE(sent.late.empty()) << "nothing is copied";
  EXPECT_TRUE(send_2.is_for_device() && receive_any.is_for_device());
  EXPECT_EQ(receive_any.message.received_tag, 2);
  EXPECT_EQ(receive_any.message.received_bytes, kBytes);
  EXPECT_FALSE(network[0].is_busy() || network[1].is_busy());
}

/// The receiver counts on a call of the sender's: the next one must not be taken for it.
TEST(ByTheDevices, ASendThatIsGivenUpMeanwhileIsACallOfNothing) {
  Network network({2});
  find_each_other(network);
  DeviceLetter send(kSend, 1, 7), next(kSend, 1, 7), receive(kReceive, 0, 7), second(kReceive, 0, 7);
  network.start(0, send);
  network.start(1, receive, second);
  network.step(1);  // the answer is on its way
  ASSERT_TRUE(receive.is_for_device());
  network[0].give_up(send.message, Status(ErrorCode::expired, "too late"));
  network.start(0, next);
  network.settle();
  const News news = news_of(network[0]);
  ASSERT_EQ(news.done.size(), 3U);
  EXPECT_EQ(news.done[0], &send.message);
  EXPECT_FALSE(send.is_for_device());
  const Message& nothing = *news.done[1];
  EXPECT_TRUE(nothing.owner == nullptr && nothing.way == Way::device && nothing.bytes == 0 && nothing.peer == 1);
  EXPECT_EQ(news.done[2], &next.message);
  EXPECT_TRUE(next.is_for_device() && second.is_for_device());
  EXPECT_FALSE(network[0].is_busy() || network[1].is_busy());
}

/// Else nobody would hear an answer that is on its way.
TEST(ByTheDevices, WhoGivesASendUpLooksOutForItsAnswer) {
  for (const bool is_gone : {false, true}) {
    Network network({2});
    find_each_other(network);
    DeviceLetter send(kSend, 1, 7), receive(kReceive, 0, 7);
    network.start(0, send);
    network.settle();
    network[0].give_up(send.message, Status(ErrorCode::expired, "too late"));
    EXPECT_TRUE(network[0].is_busy());
    if (is_gone) network[0].on_departed(1, base::Time::min());
    network.settle();
    EXPECT_FALSE(network[0].is_busy() || network[1].is_busy());
    network.start(1, receive);
    network.settle();
    EXPECT_FALSE(receive.done());
    EXPECT_TRUE(news_of(network[0]).void_sends.empty());
  }
}

TEST(ByTheDevices, WhatWasNotOfferedIsNotTakenThatWay) {
  Network network({2});
  DeviceLetter send(kSend, 1, 7);
  network.start(0, send);
  Frame frame;
  frame.kind = FrameKind::wanted;
  frame.id = send.message.id;
  frame.way = Way::device;
  network.forge(1, 0, frame);
  EXPECT_THROW(network.step(0), Error);
  EXPECT_EQ(send.message.state, Message::State::announced);
  frame.way = static_cast<Way>(3);
  network.forge(1, 0, frame);
  EXPECT_THROW(network.step(0), Error);
}

}  // namespace
}  // namespace kolo::p2p
