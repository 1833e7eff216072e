// SPDX-License-Identifier: Apache-2.0
#include "data/p2p/matching.hpp"

#include <gtest/gtest.h>

namespace kolo::p2p {
namespace {

Message receive_from(int peer, std::int32_t tag, std::uint64_t set = 0) {
  Message receive;
  receive.role = Message::Role::receive;
  receive.peer = peer;
  receive.tag = tag;
  receive.set = set;
  return receive;
}

Frame message(std::int32_t tag, std::uint64_t id, std::uint64_t set = 0, FrameKind kind = FrameKind::whole) {
  Frame frame;
  frame.kind = kind;
  frame.tag = tag;
  frame.id = id;
  frame.set = set;
  return frame;
}

TEST(Matching, AMessageGoesToTheFirstReceiveThatItFits) {
  Matching matching;
  Message other_source = receive_from(2, 5);
  Message other_tag = receive_from(1, 6);
  Message other_set = receive_from(1, 5, 7);
  Message any = receive_from(kAny, kAny);
  Message exact = receive_from(1, 5);
  for (Message* receive : {&other_source, &other_tag, &other_set, &any, &exact}) EXPECT_FALSE(matching.post(*receive));
  EXPECT_EQ(matching.find(message(5, 1), 1), &any);
  EXPECT_EQ(matching.find(message(5, 2), 1), &exact);
  EXPECT_EQ(matching.find(message(5, 3), 1), nullptr);
  EXPECT_EQ(matching.find(message(5, 3, 7), 1), &other_set);
  EXPECT_EQ(matching.find(message(6, 3), 1), &other_tag);
  EXPECT_EQ(matching.find(message(5, 1), 2), &other_source);
  EXPECT_TRUE(matching.posted().empty());
}

TEST(Matching, AReceiveGetsTheFirstMessageThatFits) {
  Matching matching;
  matching.keep({message(5, 1), 1, nullptr, nullptr});
  matching.keep({message(5, 1), 2, nullptr, nullptr});
  matching.keep({message(6, 2), 1, nullptr, nullptr});
  matching.keep({message(5, 3), 1, nullptr, nullptr});
  const auto take = [&](Message receive) {
    const std::optional<Arrival> arrival = matching.post(receive);
    if (!arrival) matching.remove(receive);
    return arrival ? arrival->source * 100 + static_cast<int>(arrival->frame.id) : 0;
  };
  EXPECT_EQ(take(receive_from(1, 7)), 0);
  EXPECT_EQ(take(receive_from(1, 5, 1)), 0);
  EXPECT_EQ(take(receive_from(2, kAny)), 201);
  EXPECT_EQ(take(receive_from(kAny, 6)), 102);
  EXPECT_EQ(take(receive_from(1, 5)), 101);
  EXPECT_EQ(take(receive_from(kAny, kAny)), 103);
  EXPECT_EQ(matching.kept().messages, 0U);
  EXPECT_EQ(matching.kept().bytes, 0U);
}

TEST(Matching, WhatIsTakenOutIsNotFound) {
  Matching matching;
  Message receive = receive_from(1, 5);
  EXPECT_FALSE(matching.post(receive));
  EXPECT_TRUE(matching.remove(receive));
  EXPECT_FALSE(matching.remove(receive));
  EXPECT_EQ(matching.find(message(5, 1), 1), nullptr);

  matching.keep({message(5, 1, 3, FrameKind::announced), 1, nullptr, nullptr});
  matching.keep({message(5, 2, 3), 1, nullptr, nullptr});
  EXPECT_FALSE(matching.remove(1, 2)) << "a whole message cannot be withdrawn: its send is done";
  EXPECT_FALSE(matching.remove(2, 1));
  EXPECT_TRUE(matching.remove(1, 1));
  EXPECT_FALSE(matching.take_of_set(4));
  EXPECT_EQ(matching.take_of_set(3)->frame.id, 2U);
  EXPECT_FALSE(matching.take_of_set(3));
}

}  // namespace
}  // namespace kolo::p2p
