// SPDX-License-Identifier: Apache-2.0
#include "transport/polled_inter_node.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>

namespace kolo::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A transport whose operations complete when the test says so.
class Silent final : public InterNode {
 public:
  std::byte* staging(std::size_t) override { return memory_.data(); }
  Operation send(int, int, const std::byte*, std::size_t) override { return ++started_; }
  Operation receive(int, int, std::byte*, std::size_t) override { return ++started_; }
  bool test(Operation operation) override {
    if (hangs) std::promise<void>().get_future().wait();
    return operation <= complete;
  }
  void push(base::Time) override { ++pushes; }
  const char* name() const noexcept override { return "silence"; }

  Operation complete = 0;
  int pushes = 0;
  bool hangs = false;  ///< `test`

 private:
  std::array<std::byte, 64> memory_{};
  Operation started_ = 0;
};

class Polled : public ::testing::Test {
 protected:
  Polled() {
    node_.report_to({{}, [this] { ++starved_; }});
  }
  InterNode::Operation receive() { return node_.receive(1, 0, memory_.data(), memory_.size()); }
  InterNode::Operation send() { return node_.send(1, 0, memory_.data(), memory_.size()); }
  /// A pass of the driver, so long after the last one.
  void pass(base::Duration later) { node_.progress(now_ += later); }

  std::shared_ptr<Silent> inner_ = std::make_shared<Silent>();
  PolledInterNode node_{inner_};
  std::array<std::byte, 8> memory_{};
  base::Time now_ = base::now();
  int starved_ = 0;
};

TEST_F(Polled, NapsAsLongAsNothingHasMoved) {
  EXPECT_FALSE(node_.nap()) << "nothing is open";
  EXPECT_LT(node_.event_fd(), 0);
  const auto first = receive();
  pass(milliseconds(0));
  EXPECT_EQ(node_.nap(), microseconds(20)) << "at least";
  for (int i = 0; i < 10; ++i) pass(microseconds(5));  // peers of the node end the naps early
  EXPECT_EQ(node_.nap(), microseconds(50));
  pass(microseconds(50));
  EXPECT_EQ(node_.nap(), microseconds(100));
  pass(milliseconds(10));
  EXPECT_EQ(node_.nap(), milliseconds(1)) << "at most";
  receive();
  inner_->complete = first;
  EXPECT_TRUE(node_.test(first));
  pass(milliseconds(0));
  EXPECT_EQ(node_.nap(), microseconds(20)) << "something has come";
  inner_->complete = first + 1;
  EXPECT_TRUE(node_.test(first + 1));
  EXPECT_FALSE(node_.nap());
}

TEST_F(Polled, SaysThatItIsStarvedLessAndLessOften) {
  pass(milliseconds(0));
  pass(milliseconds(1000));
  EXPECT_EQ(starved_, 0) << "it waits for nothing";
  receive();
  pass(milliseconds(0));
  pass(milliseconds(1));
  pass(milliseconds(99));
  EXPECT_EQ(starved_, 0);
  pass(milliseconds(1));
  EXPECT_EQ(starved_, 1);
  pass(milliseconds(199));
  EXPECT_EQ(starved_, 1);
  pass(milliseconds(1));
  EXPECT_EQ(starved_, 2);
  pass(milliseconds(5000));
  pass(milliseconds(5000));
  EXPECT_EQ(starved_, 4);
  pass(milliseconds(999));
  EXPECT_EQ(starved_, 4);
  pass(milliseconds(1));
  EXPECT_EQ(starved_, 5) << "once a second at last";
}

TEST_F(Polled, WhateverComesEndsTheWait) {
  const auto first = receive();
  receive();
  pass(milliseconds(0));
  pass(milliseconds(1));
  pass(milliseconds(90));
  inner_->complete = first;
  EXPECT_TRUE(node_.test(first));
  pass(milliseconds(20));
  pass(milliseconds(1));
  pass(milliseconds(99));
  EXPECT_EQ(starved_, 0);
  pass(milliseconds(1));
  EXPECT_EQ(starved_, 1);
}

TEST_F(Polled, MessagesThatNobodyTakesAreAWaitToo) {
  send();
  pass(milliseconds(0));
  EXPECT_TRUE(node_.nap());
  pass(milliseconds(1));
  pass(milliseconds(100));
  EXPECT_EQ(starved_, 1);
}

TEST_F(Polled, PushesForAWhileInEveryPass) {
  pass(milliseconds(0));
  EXPECT_EQ(inner_->pushes, 0);
  node_.push(now_);
  EXPECT_EQ(node_.nap(), milliseconds(1)) << "though nothing is open";
  pass(milliseconds(0));
  pass(milliseconds(99));
  EXPECT_EQ(inner_->pushes, 2);
  pass(milliseconds(1));
  EXPECT_EQ(inner_->pushes, 2);
}

TEST_F(Polled, WhatIsExpectedIsOpen) {
  node_.expect(true);
  node_.expect(true);
  pass(milliseconds(0));
  EXPECT_EQ(node_.nap(), microseconds(20));
  for (int ms = 0; ms <= 200; ms += 50) pass(milliseconds(50));
  EXPECT_GT(starved_, 0) << "a sender may hold it back";
  node_.expect(false);
  pass(milliseconds(0));
  EXPECT_FALSE(node_.nap());
}

TEST_F(Polled, ACallThatDoesNotReturnEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [this] {
    node_.limit_calls(milliseconds(8), "the transport hangs");
    const auto operation = receive();
    EXPECT_FALSE(node_.test(operation));
    inner_->hangs = true;
    static_cast<void>(node_.test(operation));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(EXIT_FAILURE), "the transport hangs");
}

}  // namespace
}  // namespace kolo::transport
