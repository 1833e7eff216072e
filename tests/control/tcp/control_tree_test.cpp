// SPDX-License-Identifier: Apache-2.0
//
// Connected trees: frames both ways, backlog, and ends of every kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <stdexcept>

#include "tests/control/tcp/raw_peer.hpp"
#include "tests/control/tcp/tree_harness.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::tcp::testing {
namespace {

using Errors = std::vector<std::string>;
using Losses = std::vector<std::pair<int, std::string>>;

Errors none(int nodes) { return Errors(static_cast<std::size_t>(nodes)); }

std::uint32_t seed_of(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(from * 1000 + to * 100) + static_cast<std::uint32_t>(i);
}

std::vector<int> neighbours(const TcpControlChannel& channel) {
  std::vector<int> all = channel.children();
  if (channel.parent()) all.push_back(*channel.parent());
  return all;
}

/// Sends frames of these sizes to all neighbours and expects theirs, in order.
void exchange(int self, Node& node, const std::vector<std::size_t>& sizes) {
  const std::vector<int> others = neighbours(*node.channel);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (const int other : others) node.send(other, pattern(sizes[i], seed_of(self, other, i)));
  }
  ASSERT_TRUE(node.serve_until([&] { return node.frames.size() == sizes.size() * others.size(); }));
  ASSERT_TRUE(node.serve_until_flushed());
  for (const int other : others) {
    std::size_t i = 0;
    for (const auto& [from, frame] : node.frames) {
      if (from != other) continue;
      ASSERT_EQ(frame.size(), sizes[i]) << "frame " << i << " from node " << other;
      ASSERT_TRUE(frame == pattern(sizes[i], seed_of(other, self, i))) << "frame " << i << " from node " << other;
      ++i;
    }
    EXPECT_EQ(i, sizes.size());
  }
  EXPECT_EQ(node.lost, Losses());
}

class Trees : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Trees, CarryFramesOfAllSizesBothWaysInOrder) {
  TreeOptions options;
  std::tie(options.nodes, options.fanout) = GetParam();
  const std::vector<std::size_t> sizes = {
      0, 1,      3, 4, 5, 0, 0, 1000, 65531, 65532, 65533, kolo::testing::unless_sanitized(5U << 20, 300'000U),
      7, 200000, 0};
  const Errors errors = run_tree(options, [&](int self, Node& node) {
    const auto topology = one_rank_a_node(self, options.nodes);
    EXPECT_EQ(node.channel->children(), topology.tree_children(self, options.fanout));
    EXPECT_EQ(node.channel->parent().has_value(), self != 0);
    if (self != 0) {
      EXPECT_EQ(node.channel->parent(), core::Topology::tree_parent(self, options.fanout));
    }
    node.channel->expect_close();
    exchange(self, node, sizes);
  });
  EXPECT_EQ(errors, none(options.nodes));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Trees,
                         ::testing::Values(std::tuple(1, 2), std::tuple(2, 8), std::tuple(3, 1), std::tuple(3, 2),
                                           std::tuple(4, 2), std::tuple(5, 2), std::tuple(6, 3), std::tuple(7, 2),
                                           std::tuple(8, 8), std::tuple(9, 8), std::tuple(9, 2)));

TEST(ControlTree, AHandlerMayRelay) {
  TreeOptions options;
  options.nodes = 4;
  options.fanout = 1;  // a chain: what node 3 says passes through 2 and 1
  const std::size_t count = 200;
  const Errors errors = run_tree(options, [&](int self, Node& node) {
    node.channel->expect_close();
    node.also_on_frame = [&](int, control::ByteView frame) {
      if (self != 0) node.channel->send(self - 1, frame);
    };
    for (std::size_t i = 0; self == 3 && i < count; ++i) node.send(2, pattern(i * 100, static_cast<std::uint32_t>(i)));
    ASSERT_TRUE(node.serve_until([&] { return node.frames.size() == (self == 3 ? 0 : count); }));
    ASSERT_TRUE(node.serve_until_flushed());
    for (std::size_t i = 0; i < node.frames.size(); ++i) {
      ASSERT_TRUE(node.frames[i].second == pattern(i * 100, static_cast<std::uint32_t>(i))) << "frame " << i;
    }
  });
  EXPECT_EQ(errors, none(4));
}

TEST(ControlTree, ABacklogWaitsForAPeerThatDoesNotRead) {
  constexpr std::size_t kFrames = kolo::testing::unless_sanitized(64U, 16U);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::promise<void> all_sent;
  const Errors errors = run_tree({}, [&](int self, Node& node) {
    if (self == 0) {
      EXPECT_TRUE(node.is_quiet());
      for (std::size_t i = 0; i < kFrames; ++i) node.send(1, pattern(kBytes, static_cast<std::uint32_t>(i)));
      EXPECT_FALSE(node.channel->flushed());
      all_sent.set_value();
      ASSERT_TRUE(node.serve_until_flushed());
      // Nothing is left to write: to be told that writing is possible would keep the engine awake.
      EXPECT_TRUE(node.is_quiet());
      node.channel->expect_close();
      node.send(1, {});
      node.serve_until([&] { return !node.frames.empty(); });
    } else {
      all_sent.get_future().wait();
      ASSERT_TRUE(node.serve_until([&] { return node.frames.size() == kFrames + 1; }));
      for (std::size_t i = 0; i < kFrames; ++i) {
        ASSERT_TRUE(node.frames[i].second == pattern(kBytes, static_cast<std::uint32_t>(i))) << "frame " << i;
      }
      node.channel->expect_close();
      node.send(0, {});
      ASSERT_TRUE(node.serve_until_flushed());
    }
  });
  EXPECT_EQ(errors, none(2));
}

TEST(ControlTree, APeerThatGoesIsLostOnceAndLeavesItsLastWords) {
  TreeOptions options;
  options.nodes = 3;
  const Errors errors = run_tree(options, [&](int self, Node& node) {
    if (self == 2) {
      node.send(0, pattern(1 << 20, 1));
      node.send(0, pattern(5, 2));
      ASSERT_TRUE(node.serve_until_flushed());
      return;  // closes without a word
    }
    if (self == 1) {
      node.channel->expect_close();
      ASSERT_TRUE(node.serve_until([&] { return node.frames.size() == 1; }));
      return;
    }
    ASSERT_TRUE(node.serve_until([&] { return !node.lost.empty(); }));
    EXPECT_EQ(node.lost, (Losses{{2, "connection closed by node 2 (rank 2)"}}));
    ASSERT_EQ(node.frames.size(), 2u);
    EXPECT_TRUE(node.frames[0].second == pattern(1 << 20, 1));
    EXPECT_TRUE(node.frames[1].second == pattern(5, 2));
    // Gone for good: no more events, no second report; what is sent to it is nothing to wait for.
    EXPECT_TRUE(node.is_quiet());
    node.send(2, pattern(100, 3));
    EXPECT_TRUE(node.channel->flushed());
    node.channel->service(node);
    EXPECT_EQ(node.lost.size(), 1u);
    // The others are still there.
    node.channel->expect_close();
    node.send(1, pattern(10, 4));
    ASSERT_TRUE(node.serve_until_flushed());
  });
  EXPECT_EQ(errors, none(3));
}

TEST(ControlTree, AnExpectedCloseIsNoLoss) {
  std::promise<void> closed;
  const Errors errors = run_tree({}, [&](int self, Node& node) {
    node.channel->expect_close();
    if (self == 1) {
      node.channel.reset();
      closed.set_value();
      return;
    }
    closed.get_future().wait();
    std::vector<base::Poller::Event> events;
    node.poller.wait(std::chrono::minutes(1), events);
    EXPECT_EQ(events.size(), 1u);
    node.channel->service(node);
    EXPECT_EQ(node.lost, Losses());
    EXPECT_TRUE(node.is_quiet());
  });
  EXPECT_EQ(errors, none(2));
}

TEST(ControlTree, ClosingWithUnreadInputDoesNotDestroyWhatWasSent) {
  std::promise<void> sent;
  std::promise<void> closed;
  const Errors errors = run_tree({}, [&](int self, Node& node) {
    node.send(1 - self, pattern(100000, static_cast<std::uint32_t>(self)));
    if (self == 1) {
      sent.get_future().wait();
      ASSERT_TRUE(node.channel->flushed());
      node.channel.reset();  // never having read
      closed.set_value();
      return;
    }
    sent.set_value();
    closed.get_future().wait();
    ASSERT_TRUE(node.serve_until([&] { return !node.lost.empty(); }));
    ASSERT_EQ(node.frames.size(), 1u);
    EXPECT_TRUE(node.frames[0].second == pattern(100000, 1));
  });
  EXPECT_EQ(errors, none(2));
}

TEST(ControlTree, AHandlerThatThrowsLosesNothingElse) {
  const Errors errors = run_tree({}, [&](int self, Node& node) {
    node.channel->expect_close();
    if (self == 1) {
      for (std::uint32_t i = 0; i < 10; ++i) node.send(0, pattern(10, i));
      ASSERT_TRUE(node.serve_until([&] { return node.frames.size() == 1; }));
      return;
    }
    node.also_on_frame = [&](int, control::ByteView) { throw std::runtime_error("not this one"); };
    int thrown = 0;
    std::vector<base::Poller::Event> events;
    for (bool threw = false; node.frames.size() < 10;) {
      // Frames that a service which threw has left behind are owed without an event.
      if (!threw) node.poller.wait(std::chrono::minutes(1), events);
      ASSERT_TRUE(threw || !events.empty());
      try {
        node.channel->service(node);
        threw = false;
      } catch (const std::runtime_error&) {
        ++thrown;
        threw = true;
      }
    }
    EXPECT_EQ(thrown, 10);
    for (std::uint32_t i = 0; i < node.frames.size(); ++i) EXPECT_TRUE(node.frames[i].second == pattern(10, i));
    node.send(1, {});
    ASSERT_TRUE(node.channel->flushed());
  });
  EXPECT_EQ(errors, none(2));
}

// ---------------------------------------------------------------- a child that does not behave

const std::string kKey = "the key of this job";

/// Node 0 of two, its child being `misbehave` after a right handshake. Serves until the child is lost.
Node lose_raw_child(const std::function<void(RawPeer&)>& misbehave) {
  Listener listener("127.0.0.1");
  const Addresses listening = decode_addresses(listener.addresses());
  std::promise<void> may_begin;
  std::thread child([&, ready = may_begin.get_future()]() mutable {
    RawPeer peer(listening.endpoints.front());
    peer.join(1, kKey);
    ready.wait();
    misbehave(peer);
  });
  Node node(TcpControlChannel::connect(std::move(listener), one_rank_a_node(0, 2), 8, {"", ""}, kKey,
                                       std::chrono::minutes(1)));
  may_begin.set_value();
  node.serve_until([&] { return !node.lost.empty(); });
  child.join();
  return node;
}

TEST(ControlTree, AHalfWrittenFrameIsNeverDelivered) {
  const Node node = lose_raw_child([](RawPeer& peer) {
    peer.write(std::string("\x03\0\0\0abc", 7));
    peer.write(std::string("\x05\0\0\0ab", 6));
    peer.close();
  });
  EXPECT_EQ(node.lost, (Losses{{1, "connection closed by node 1 (rank 1) in the middle of a message"}}));
  ASSERT_EQ(node.frames.size(), 1u);
  EXPECT_EQ(node.frames[0].second, (control::Bytes{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}}));
}

TEST(ControlTree, AFrameLargerThanAllowedEndsTheConnection) {
  const Node node = lose_raw_child([](RawPeer& peer) {
    peer.write(std::string("\x01\0\0\x40", 4));
    peer.read_to_end();  // we stay; the other side gives up
  });
  EXPECT_EQ(node.lost,
            (Losses{{1, "node 1 (rank 1) sent a frame of 1073741825 bytes, more than the protocol allows"}}));
  EXPECT_TRUE(node.frames.empty());
}

TEST(ControlTree, AResetIsTold) {
  const Node node = lose_raw_child([](RawPeer& peer) { peer.reset(); });
  EXPECT_EQ(node.lost, (Losses{{1, "connection reset by node 1 (rank 1)"}}));
}

}  // namespace
}  // namespace kolo::tcp::testing
