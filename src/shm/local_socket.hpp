// SPDX-License-Identifier: Apache-2.0
//
// Sockets between processes of one host that carry packets and descriptors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace kolo::shm {

/// What the kernel says about the process at the other end.
struct Peer {
  pid_t pid = 0;  ///< 0 when it is in a pid namespace that we do not see
  uid_t uid = 0;
};

/// A packet and the descriptors that came with it.
struct Packet {
  std::string bytes;
  std::vector<base::UniqueFd> descriptors;
};

/// One end of a connection. All calls throw Error(transport) when the system fails, the peer is gone, or `deadline`
/// passes.
class LocalSocket {
 public:
  /// The most descriptors of one packet; the kernel's limit is 253.
  static constexpr std::size_t kDescriptorsPerPacket = 128;
  static constexpr std::size_t kLongestPacket = 4096;

  explicit LocalSocket(base::UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  static LocalSocket connect(const std::string& name, base::Time deadline);

  void send(const std::string& bytes, const std::vector<int>& descriptors, base::Time deadline);
  Packet receive(base::Time deadline);
  [[nodiscard]] Peer peer() const;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  base::UniqueFd fd_;
};

/// Listens under an abstract name that the kernel chose.
class LocalListener {
 public:
  explicit LocalListener(int backlog);
  /// The name, without the zero byte that makes it abstract.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  LocalSocket accept(base::Time deadline);

 private:
  base::UniqueFd fd_;
  std::string name_;
};

}  // namespace kolo::shm
