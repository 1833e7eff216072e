// SPDX-License-Identifier: Apache-2.0
//
// One connection to the leader of another node, after the handshake: frames (frame_inbox.hpp). Non-blocking throughout;
// not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/poller.hpp"
#include "control/codec.hpp"
#include "control/control_channel.hpp"
#include "control/tcp/asio.hpp"
#include "control/tcp/frame_inbox.hpp"

namespace kolo::tcp {

/// How long until a peer whose host is gone counts as lost: by keepalive if no data is under way to it, else by
/// TCP_USER_TIMEOUT. The same holds for a peer that leaves a full window unread for as long.
inline constexpr int kHostLostSeconds = 30;

class Link {
 public:
  /// Takes a connected socket, and sets the options that it needs. Throws Error(transport).
  Link(int node, int leader_rank, tcp::socket socket);
  /// Reads what has arrived before it closes, so that the peer still gets everything sent before: closing a socket
  /// with unread input resets the connection.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] int node() const noexcept { return node_; }
  /// -1 once it has ended.
  [[nodiscard]] int descriptor() { return socket_.is_open() ? socket_.native_handle() : -1; }
  /// The poller must outlive all calls but the destructor.
  void attach(base::Poller& poller, std::uint64_t tag);
  void send(control::ByteView frame);
  /// How a connection ended.
  struct End {
    std::string reason;
    bool departure = false;  ///< the peer has closed it as one does that leaves in order
  };
  /// Delivers whole frames and writes the backlog. Returns the connection's end, once; it is closed then.
  [[nodiscard]] std::optional<End> service(control::ControlChannel::Handler& handler);
  [[nodiscard]] bool flushed() const noexcept { return outbox_.empty(); }

 private:
  enum class Reading { more, dry, ended };

  Reading read_some();
  void deliver(control::ControlChannel::Handler& handler);
  void write_backlog();
  void stop_writing(const error_code& error);
  void update_interest();
  void close();
  [[nodiscard]] std::string reason() const;
  [[nodiscard]] std::string name() const;

  const int node_;
  const int leader_rank_;
  tcp::socket socket_;
  base::Poller* poller_ = nullptr;
  std::uint64_t tag_ = 0;
  FrameInbox inbox_;
  ByteQueue outbox_;
  bool wants_to_write_ = false;  // whether the poller watches for writability
  bool cannot_write_ = false;    // reading goes on: what the peer sent before its end still counts
  error_code end_;               // why reading or else writing ended
};

}  // namespace kolo::tcp
