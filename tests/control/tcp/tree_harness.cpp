// SPDX-License-Identifier: Apache-2.0
#include "tests/control/tcp/tree_harness.hpp"

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>

namespace kolo::tcp::testing {

core::Topology one_rank_a_node(int node, int nodes) {
  std::vector<int> machines;
  for (int i = 0; i < nodes; ++i) machines.push_back(i);
  return core::make_topology(node, machines, 0);
}

control::Bytes pattern(std::size_t bytes, std::uint32_t seed) {
  control::Bytes result(bytes);
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::byte& byte : result) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return result;
}

Node::Node(std::unique_ptr<TcpControlChannel> the_channel) : channel(std::move(the_channel)) {
  channel->attach(poller, 7);
}

void Node::on_frame(int node, control::ByteView frame) {
  frames.emplace_back(node, control::Bytes(frame.begin(), frame.end()));
  if (also_on_frame) also_on_frame(node, frame);
}

void Node::on_lost(int node, const std::string& reason) { lost.emplace_back(node, reason); }

bool Node::serve_until(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::vector<base::Poller::Event> events;
  while (!done()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) {
      ADD_FAILURE() << "nothing more came within a minute";
      return false;
    }
    poller.wait(left, events);
    for (const auto& event : events) EXPECT_EQ(event.tag, 7u);
    channel->service(*this);
  }
  return true;
}

bool Node::is_quiet() {
  std::vector<base::Poller::Event> events;
  poller.poll(events);
  return events.empty();
}

std::vector<std::string> run_tree(const TreeOptions& options, const std::function<void(int, Node&)>& body) {
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
  for (int node = 0; node < options.nodes; ++node) {
    listeners.emplace_back(options.interface);
    addresses.push_back(options.tell(node, listeners.back().addresses()));
  }
  std::vector<std::string> errors(static_cast<std::size_t>(options.nodes));
  std::vector<std::thread> threads;
  for (int node = 0; node < options.nodes; ++node) {
    const auto index = static_cast<std::size_t>(node);
    threads.emplace_back([&, node, index, listener = std::move(listeners[index])]() mutable {
      try {
        Node me(TcpControlChannel::connect(std::move(listener), one_rank_a_node(node, options.nodes), options.fanout,
                                           addresses, options.key(node), options.timeout));
        body(node, me);
      } catch (const std::exception& error) {
        errors[index] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace kolo::tcp::testing
