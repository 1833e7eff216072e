// SPDX-License-Identifier: Apache-2.0
#include "engine/leader.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.hpp"

namespace kolo::engine {
namespace {

/// A node's memory without anybody to wake.
class PlainLink final : public core::NodeLink {
 public:
  explicit PlainLink(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))), bytes_(bytes) {
    std::memset(memory_, 0, bytes);
  }
  ~PlainLink() override { std::free(memory_); }
  [[nodiscard]] std::byte* memory() const noexcept override { return memory_; }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  void wake(int) noexcept override {}
  [[nodiscard]] int wake_fd() const noexcept override { return -1; }
  [[nodiscard]] std::vector<Liveness> liveness() const override { return {}; }

 private:
  std::byte* memory_;
  std::size_t bytes_;
};

/// The root's channel to one child node, whose words the test puts into it.
class ScriptedChannel final : public core::ControlChannel {
 public:
  [[nodiscard]] std::optional<int> parent() const noexcept override { return std::nullopt; }
  [[nodiscard]] const std::vector<int>& children() const noexcept override { return children_; }
  void attach(base::Poller&, std::uint64_t) override {}
  void send(int, core::ByteView frame) override { sent.emplace_back(frame.begin(), frame.end()); }
  void service(Handler& handler) override {
    for (const auto& deliver : std::exchange(incoming, {})) deliver(handler);
  }
  [[nodiscard]] bool flushed() const noexcept override { return true; }
  void expect_close() noexcept override {}

  std::vector<std::function<void(Handler&)>> incoming;
  std::vector<core::Bytes> sent;

 private:
  const std::vector<int> children_{1};
};

core::Bytes frame_of(const core::UpMessage& message) {
  core::Bytes bytes;
  core::encode(message, bytes);
  core::Bytes frame(sizeof(std::uint32_t) + bytes.size());
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(frame.data(), &length, sizeof length);
  std::memcpy(frame.data() + sizeof length, bytes.data(), bytes.size());
  return frame;
}

class LeaderOfTwoNodes : public testing::Test {
 protected:
  base::Settings settings_;
  core::Topology topology_ = core::make_topology(0, {0, 1}, 0);
  PlainLink link_{board_shape(settings_, 1).bytes()};
  core::Board board_{link_.memory(), board_shape(settings_, 1), 0};
  ScriptedChannel channel_;
  base::Logger logger_{LogLevel::off};
  Leader leader_{topology_, settings_, board_, link_, &channel_, logger_};
};

TEST_F(LeaderOfTwoNodes, WhatWasHeardIsOwedUntilItHasBeenPassedOn) {
  EXPECT_FALSE(leader_.has_news());
  const core::Bytes frame = frame_of(core::Left{1});
  channel_.incoming.push_back([&](auto& handler) { handler.on_frame(1, core::ByteView(frame.data(), frame.size())); });
  EXPECT_TRUE(leader_.service_sockets());
  EXPECT_TRUE(leader_.has_news());  // a driver that sleeps now would leave it there
  EXPECT_TRUE(channel_.sent.empty());
  EXPECT_TRUE(leader_.step(base::now()));
  EXPECT_FALSE(leader_.has_news());
  EXPECT_FALSE(channel_.sent.empty());  // the root has told all that rank 1 has left
  core::Bytes entry;
  ASSERT_TRUE(board_.next_log_entry(entry));
  const core::LogEntry read = core::decode_log(core::ByteView(entry.data(), entry.size()));
  ASSERT_TRUE(std::holds_alternative<core::RankLeft>(read));
  EXPECT_EQ(std::get<core::RankLeft>(read).rank, 1);
}

TEST_F(LeaderOfTwoNodes, ALostNodeIsAFaultThatNamesItsLeader) {
  channel_.incoming.push_back([](auto& handler) { handler.on_lost(1, "connection reset"); });
  leader_.service_sockets();
  EXPECT_TRUE(leader_.has_news());
  leader_.step(base::now());
  EXPECT_TRUE(leader_.ended());
  core::Bytes entry;
  ASSERT_TRUE(board_.next_log_entry(entry));
  const core::LogEntry read = core::decode_log(core::ByteView(entry.data(), entry.size()));
  ASSERT_TRUE(std::holds_alternative<core::Faulted>(read));
  EXPECT_EQ(std::get<core::Faulted>(read).rank, 1);
  EXPECT_EQ(std::get<core::Faulted>(read).code, ErrorCode::rank_lost);
}

}  // namespace
}  // namespace kolo::engine
