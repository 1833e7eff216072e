// SPDX-License-Identifier: Apache-2.0
#include "transport/gated_inter_node.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace kolo::transport {
namespace {

/// A transport that notes on which threads it is called, and completes what it is told to.
class Noting final : public InterNode {
 public:
  std::byte* staging(std::size_t bytes) override {
    memory_.emplace_back(bytes);
    return memory_.back().data();
  }
  Operation send(int rank, int tag, const std::byte*, std::size_t bytes) override {
    return note("send", rank, tag, bytes);
  }
  Operation receive(int rank, int tag, std::byte*, std::size_t bytes) override {
    return note("receive", rank, tag, bytes);
  }
  bool test(Operation operation) override {
    if (broken) throw Error(ErrorCode::transport, "the cable is cut");
    return operation <= complete;
  }
  void push(base::Time) override { ++pushes; }
  void listen(int tag, std::size_t bytes) override { note("listen", 0, tag, bytes); }
  std::optional<Heard> hear() override {
    if (to_hear.empty()) return std::nullopt;
    heard_ = to_hear.front();
    to_hear.erase(to_hear.begin());
    return Heard{3, &heard_, 1};
  }
  const char* name() const noexcept override { return "notes"; }

  std::vector<std::string> calls;
  std::vector<std::byte> to_hear;
  Operation complete = 0;
  int pushes = 0;
  bool broken = false;

 private:
  Operation note(const char* what, int rank, int tag, std::size_t bytes) {
    calls.push_back(std::string(what) + " " + std::to_string(rank) + " " + std::to_string(tag) + " " +
                    std::to_string(bytes));
    return calls.size();
  }
  std::vector<std::vector<std::byte>> memory_;
  std::byte heard_{};
};

struct Gated {
  explicit Gated(std::shared_ptr<CallerGate> gate, bool any_thread = true)
      : inner(std::make_shared<Noting>()),
        node(inner, CallRule{std::move(gate), any_thread, std::this_thread::get_id(), "no", "nobody comes"}) {}
  std::shared_ptr<Noting> inner;
  GatedInterNode node;
  std::array<std::byte, 8> memory{};
};

TEST(GatedInterNode, NothingIsCalledBeforeTheGateIsMoved) {
  const auto gate = std::make_shared<CallerGate>();
  Gated one(gate);
  EXPECT_FALSE(gate->has_open());
  const base::EventCount::Ticket before = gate->changes().ticket();
  const auto out = one.node.send(3, 7, one.memory.data(), 4);
  const auto in = one.node.receive(2, 7, one.memory.data(), 5);
  EXPECT_NE(gate->changes().ticket(), before) << "callers that sleep learn of it";
  EXPECT_TRUE(gate->has_open());
  EXPECT_FALSE(one.node.test(out));
  EXPECT_TRUE(one.inner->calls.empty());
  EXPECT_TRUE(gate->move());
  EXPECT_EQ(one.inner->calls, (std::vector<std::string>{"send 3 7 4", "receive 2 7 5"})) << "in order";
  EXPECT_FALSE(gate->move()) << "nothing new";
  one.inner->complete = 1;
  EXPECT_TRUE(gate->move());
  EXPECT_TRUE(one.node.test(out));
  EXPECT_FALSE(one.node.test(out)) << "told once";
  EXPECT_FALSE(one.node.test(in));
  one.inner->complete = 2;
  EXPECT_TRUE(gate->move());
  EXPECT_TRUE(one.node.test(in));
  EXPECT_FALSE(gate->has_open());
}

TEST(GatedInterNode, WhoMovesTheGateMovesAllContexts) {
  const auto gate = std::make_shared<CallerGate>();
  Gated one(gate);
  Gated other(gate);
  int woken = 0;
  other.node.set_wake([&] { ++woken; });
  const auto theirs = other.node.receive(0, 0, other.memory.data(), 1);
  one.node.send(1, 0, one.memory.data(), 1);
  one.inner->complete = other.inner->complete = 1;
  EXPECT_TRUE(gate->move());
  EXPECT_TRUE(other.node.test(theirs));
  EXPECT_EQ(woken, 1);
  other.node.set_wake({});
}

TEST(GatedInterNode, AFailureIsOfTheContextWhoseTransportFailed) {
  const auto gate = std::make_shared<CallerGate>();
  Gated one(gate);
  Gated other(gate);
  const auto mine = one.node.receive(0, 0, one.memory.data(), 1);
  const auto theirs = other.node.receive(0, 0, other.memory.data(), 1);
  one.inner->broken = true;
  other.inner->complete = 1;
  EXPECT_TRUE(gate->move());
  EXPECT_TRUE(other.node.test(theirs));
  try {
    static_cast<void>(one.node.test(mine));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "kolo: the cable is cut");
  }
  EXPECT_FALSE(gate->has_open());
}

TEST(GatedInterNode, AnAbandonedOneIsNotMoved) {
  const auto gate = std::make_shared<CallerGate>();
  Gated one(gate);
  one.node.send(1, 0, one.memory.data(), 1);
  one.node.abandon();
  EXPECT_FALSE(gate->has_open());
  EXPECT_FALSE(gate->move());
  EXPECT_TRUE(one.inner->calls.empty());
}

TEST(GatedInterNode, PushIsTheCallersToo) {
  const auto gate = std::make_shared<CallerGate>();
  Gated one(gate);
  one.node.push(base::now());
  one.node.push(base::now());
  EXPECT_EQ(one.inner->pushes, 0);
  EXPECT_TRUE(gate->move());
  EXPECT_EQ(one.inner->pushes, 1);
  EXPECT_FALSE(gate->has_open());
}

TEST(GatedInterNode, WhatIsHeardIsTheCallersTooAndOnlyWhereItIsExpected) {
  const auto gate = std::make_shared<CallerGate>();
  Gated one(gate);
  one.inner->to_hear = {std::byte{1}, std::byte{2}};
  one.node.listen(9, 100);
  EXPECT_FALSE(gate->move()) << "nobody expects anything";
  one.node.expect(true);
  EXPECT_TRUE(gate->has_open());
  EXPECT_TRUE(one.inner->calls.empty());
  EXPECT_TRUE(gate->move());
  EXPECT_EQ(one.inner->calls, std::vector<std::string>{"listen 0 9 100"});
  for (const int value : {1, 2}) {
    const auto heard = one.node.hear();
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->rank, 3);
    ASSERT_EQ(heard->bytes, 1U);
    EXPECT_EQ(*heard->data, static_cast<std::byte>(value));
  }
  EXPECT_FALSE(one.node.hear());
  EXPECT_FALSE(gate->move()) << "nothing has come";
  one.node.expect(false);
  EXPECT_FALSE(gate->has_open());
  one.node.expect(true);
  one.node.abandon();
  one.node.expect(false);
  EXPECT_FALSE(gate->has_open());
}

TEST(GatedInterNode, WhoMayMoveItFollowsFromTheRule) {
  const auto gate = std::make_shared<CallerGate>();
  Gated any(gate);
  Gated one(gate, false);
  EXPECT_TRUE(any.node.may_move_here());
  EXPECT_TRUE(one.node.may_move_here());
  std::thread([&] {
    EXPECT_TRUE(any.node.may_move_here());
    EXPECT_FALSE(one.node.may_move_here());
    const OwnThread own(any.node.callers());
    EXPECT_FALSE(any.node.may_move_here()) << "callbacks run on the library's own threads, too";
  }).join();
}

}  // namespace
}  // namespace kolo::transport
