// SPDX-License-Identifier: Apache-2.0
//
// The control channel over TCP: one connection between the leaders of each node and its parent in the tree.
//
// It is built in two steps around the bootstrap, because leaders must first learn where the others listen:
//
//   Listener listener(settings.interface);                        // leaders only
//   auto addresses = bootstrap.exchange("addresses", listener.addresses(), patience);  // all ranks; others: ""
//   auto channel = TcpControlChannel::connect(std::move(listener), topology, fanout, addresses, key, timeout);
//
// A child cannot know in advance which of the parent's addresses it can reach. It tries all of them, those
// in a subnet of its own first, and keeps the first that greets with the parent's nonce.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "control/control_channel.hpp"
#include "core/topology.hpp"

namespace kolo::tcp {

/// Listens on a port that the system chooses, from construction until `connect` has taken it. Thread-safe as an int.
class Listener {
 public:
  /// `interface` is KOLO_INTERFACE: interface names, addresses or prefixes, comma-separated; empty for all there are.
  /// Throws Error: invalid_setting when nothing matches, transport when the system refuses.
  explicit Listener(const std::string& interface = {});
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  /// For all other ranks.
  [[nodiscard]] const std::string& addresses() const noexcept;

  struct State;

 private:
  friend class TcpControlChannel;
  std::unique_ptr<State> state_;
};

class TcpControlChannel final : public control::ControlChannel {
 public:
  /// Connects to the parent and waits for the children, in this thread. `addresses` are by rank, `job_key` is the
  /// same random string of 1 to 64 bytes everywhere. Connections of other processes are closed. Throws Error(transport)
  /// if a leader is still missing after `timeout`: the sentence names it, the addresses that were tried, and what
  /// happened at each.
  static std::unique_ptr<TcpControlChannel> connect(Listener listener, const core::Topology& topology, int fanout,
                                                    const std::vector<std::string>& addresses,
                                                    const std::string& job_key, std::chrono::milliseconds timeout);
  ~TcpControlChannel() override;

  /// The interfaces of this machine by which the connections to other machines go, each once.
  [[nodiscard]] const std::vector<std::string>& interfaces() const noexcept;
  /// The nodes to which connections go over the loopback interface.
  [[nodiscard]] const std::vector<int>& loopback_nodes() const noexcept;

  [[nodiscard]] std::optional<int> parent() const noexcept override;
  [[nodiscard]] const std::vector<int>& children() const noexcept override;
  /// The poller must outlive the channel's use, though not its destruction.
  [[nodiscard]] std::vector<int> descriptors() const override;
  void attach(base::Poller& poller, std::uint64_t tag) override;
  void send(int node, control::ByteView frame) override;
  /// A handler may call `send` and `expect_close`. If it throws, so does this, and the next call goes on with the rest.
  void service(Handler& handler) override;
  [[nodiscard]] bool flushed() const noexcept override;
  void expect_close() noexcept override;

 private:
  struct State;
  explicit TcpControlChannel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kolo::tcp
