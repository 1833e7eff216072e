// SPDX-License-Identifier: Apache-2.0
//
// Sockets between processes of one host that carry packets and descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace kolo::shm {

/// The process at the other end has gone, or did not answer in time: the failure is not this process's own.
class PeerError final : public Error {
 public:
  explicit PeerError(const std::string& message) : Error(ErrorCode::transport, message) {}
};

/// The kernel's information about the process at the other end.
struct Peer {
  pid_t pid = 0;  ///< 0 if it is in a pid namespace that this process does not see
  uid_t uid = 0;
};

/// A packet and the descriptors that came with it.
struct Packet {
  std::string bytes;
  std::vector<base::UniqueFd> descriptors;
  bool descriptors_lost = false;  ///< this process could open no more
};

/// One end of a connection. All calls throw Error(transport) when the system fails, PeerError when the peer is gone or
/// `deadline` passes.
class LocalSocket {
 public:
  /// The most descriptors of one packet; the kernel's limit is 253.
  static constexpr std::size_t kDescriptorsPerPacket = 128;
  static constexpr std::size_t kLongestPacket = 4096;

  /// Not connected yet: `connect` then needs no descriptor any more.
  LocalSocket();
  explicit LocalSocket(base::UniqueFd fd) noexcept : fd_(std::move(fd)) {}

  /// Connects to the listener of this name. Waits while the listener's queue is full.
  void connect(const std::string& name, base::Time deadline);
  /// The peer's name for error messages: "rank 3".
  void call_peer(std::string name) { peer_name_ = std::move(name); }

  /// If too many descriptors of the user are under way (RLIMIT_NOFILE), waits until some have arrived.
  void send(const std::string& bytes, const std::vector<int>& descriptors, base::Time deadline);
  /// Calls `check` several times a second while it waits. If `check` throws, the wait ends with that exception.
  Packet receive(
      base::Time deadline, const std::function<void()>& check = [] {});
  /// A packet that is there already, if any.
  std::optional<Packet> try_receive();
  /// Whether `try_receive` has something to return, or to throw.
  [[nodiscard]] bool has_packet() const;
  [[nodiscard]] Peer peer() const;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  void await(short events, base::Time deadline, const std::function<void()>& check, const char* doing) const;

  base::UniqueFd fd_;
  std::string peer_name_ = "a rank of this node";
};

/// Listens under an abstract name that the kernel chose.
class LocalListener {
 public:
  explicit LocalListener(int backlog);
  /// The name, without the zero byte that makes it abstract.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Readable while a process wants to connect.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Empty if no process wants to connect.
  std::optional<LocalSocket> try_accept();

 private:
  base::UniqueFd fd_;
  std::string name_;
};

}  // namespace kolo::shm
