// SPDX-License-Identifier: Apache-2.0
//
// Frames over a connected socket, without blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"

namespace kolo::launch {

/// exchange.hpp tells who sends which.
enum class FrameType : std::uint8_t { contribution = 1, waiting = 2, result = 3, failure = 4 };

struct Frame {
  FrameType type = FrameType::contribution;
  std::uint32_t step = 0;
  std::string body;
};

/// One thread at a time.
class Connection {
 public:
  /// `longest`: of a body that the other side may send.
  Connection(base::UniqueFd fd, std::size_t longest) : fd_(std::move(fd)), longest_(longest) {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// What to wait for, as poll(2) calls it.
  [[nodiscard]] short events() const noexcept;
  /// Empty while it lives; then why it does not: "Connection reset by peer (errno 104)", "it was closed". What has
  /// arrived before can still be taken.
  [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

  void send(const Frame& frame);
  [[nodiscard]] bool flushed() const noexcept { return unsent_.empty(); }
  /// Sends and receives what is possible now.
  void pump();
  /// The next frame, once it is whole. Throws Error (transport) for bytes that are none, or one that is too long.
  [[nodiscard]] std::optional<Frame> take();

 private:
  void send_some();
  void receive_some();

  base::UniqueFd fd_;
  std::size_t longest_;
  std::string unsent_;
  std::string received_;
  std::string lost_;
};

}  // namespace kolo::launch
