// SPDX-License-Identifier: Apache-2.0
//
// Control messages between the leaders of nodes, in the tree that `Topology` describes. TCP implements it (`tcp/`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/poller.hpp"
#include "control/codec.hpp"

namespace kolo::control {

/// Only a node's leader has one, and only when there is more than one node. Calls come from the engine's driver, one
/// thread at a time. Nothing blocks: frames are buffered until the peer takes them.
class ControlChannel {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_frame(int node, ByteView frame) = 0;
    /// The link to this peer has ended; called once for each peer.
    virtual void on_lost(int node, const std::string& reason) = 0;
  };

  virtual ~ControlChannel() = default;
  [[nodiscard]] virtual std::optional<int> parent() const noexcept = 0;         ///< its node
  [[nodiscard]] virtual const std::vector<int>& children() const noexcept = 0;  ///< their nodes
  /// The sockets, while they are open.
  [[nodiscard]] virtual std::vector<int> descriptors() const = 0;
  /// Registers the sockets (and, while something waits to be written, their writability) with the poller, all under
  /// `tag`.
  virtual void attach(base::Poller& poller, std::uint64_t tag) = 0;
  /// Queues a frame and writes what the socket takes now. A lost peer is ignored here and reported by `service`.
  virtual void send(int node, ByteView frame) = 0;
  /// Reads what has arrived and writes what waits, on all links; reports frames in order for each peer.
  virtual void service(Handler& handler) = 0;
  /// True when everything queued has been handed to the system (before a close).
  [[nodiscard]] virtual bool flushed() const noexcept = 0;
  /// After this an end of file is not reported as a loss.
  virtual void expect_close() noexcept = 0;
};

}  // namespace kolo::control
