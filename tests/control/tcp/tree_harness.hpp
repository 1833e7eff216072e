// SPDX-License-Identifier: Apache-2.0
//
// Nodes as threads of one process, each with a poller of its own and real sockets between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/poller.hpp"
#include "control/tcp/control_tree.hpp"

namespace kolo::tcp::testing {

/// One rank a node.
core::Topology one_rank_a_node(int node, int nodes);

/// `bytes` of a pattern that differs by seed.
control::Bytes pattern(std::size_t bytes, std::uint32_t seed);

/// A channel with its poller, and what it has told.
class Node : public control::ControlChannel::Handler {
 public:
  explicit Node(std::unique_ptr<TcpControlChannel> channel);

  void on_frame(int node, control::ByteView frame) override;
  void on_lost(int node, const std::string& reason) override;

  void send(int node, const control::Bytes& frame) { channel->send(node, {frame.data(), frame.size()}); }
  /// Sleeps in the poller and serves the channel until `done`. Fails the test after a minute; false then.
  bool serve_until(const std::function<bool()>& done);
  bool serve_until_flushed() {
    return serve_until([&] { return channel->flushed(); });
  }
  /// Whether the poller has anything to report now.
  bool is_quiet();

  std::unique_ptr<TcpControlChannel> channel;
  base::Poller poller;
  std::vector<std::pair<int, control::Bytes>> frames;
  std::vector<std::pair<int, std::string>> lost;
  std::function<void(int, control::ByteView)> also_on_frame;
};

struct TreeOptions {
  int nodes = 2;
  int fanout = 8;
  std::chrono::milliseconds timeout{60000};
  std::string interface;
  std::function<std::string(int)> key = [](int) { return std::string("the key of this job"); };
  /// What the others are told of a node's addresses.
  std::function<std::string(int, std::string)> tell = [](int, std::string text) { return text; };
};

/// Runs `body` with every node of a connected tree, each on its thread. The i-th result is what node i's thread threw,
/// or empty.
std::vector<std::string> run_tree(const TreeOptions& options, const std::function<void(int, Node&)>& body);

}  // namespace kolo::tcp::testing
