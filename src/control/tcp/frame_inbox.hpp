// SPDX-License-Identifier: Apache-2.0
//
// Cuts received bytes into frames: 4 bytes of length (little-endian) and the contents. It has no socket; link.hpp has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "control/codec.hpp"
#include "control/tcp/byte_queue.hpp"

namespace kolo::tcp {

/// The longest frame. A longer one does not come from Kolo, and the connection is closed.
inline constexpr std::uint32_t kMaxFrameBytes = std::uint32_t{1} << 30;
inline constexpr std::size_t kLengthBytes = 4;

/// Any bytes become frames or a bad length, and take no more memory than has arrived.
class FrameInbox {
 public:
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  /// Free memory for what comes next; `commit` says how much of it has been filled. Room for what the frame at the
  /// front still lacks, but no more than as much again as has arrived: a length alone claims no memory.
  control::Bytes::pointer room() {
    std::size_t wanted = kReadBytes;
    if (bytes_.size() >= kLengthBytes) {
      const std::size_t missing = kLengthBytes + length() - bytes_.size();
      wanted = std::max(wanted, std::min(missing, bytes_.size()));
    }
    return bytes_.room(wanted);
  }
  [[nodiscard]] std::size_t free() const noexcept { return bytes_.free(); }
  void commit(std::size_t bytes) noexcept { bytes_.commit(bytes); }

  /// The next frame, once it is whole; its bytes stay until the next `room`. None after a bad length.
  [[nodiscard]] std::optional<control::ByteView> take() noexcept {
    if (bad_length_ != 0 || bytes_.size() < kLengthBytes) return std::nullopt;
    const std::uint32_t frame_bytes = length();
    if (frame_bytes > kMaxFrameBytes) {
      bad_length_ = frame_bytes;
      return std::nullopt;
    }
    if (bytes_.size() - kLengthBytes < frame_bytes) return std::nullopt;
    const control::ByteView frame(bytes_.data() + kLengthBytes, frame_bytes);
    bytes_.drop(kLengthBytes + frame_bytes);
    return frame;
  }
  /// The length of a frame that is too long; 0: there was none.
  [[nodiscard]] std::uint32_t bad_length() const noexcept { return bad_length_; }
  void clear() noexcept { bytes_.clear(); }

 private:
  static constexpr std::size_t kReadBytes = std::size_t{64} << 10;

  [[nodiscard]] std::uint32_t length() const noexcept {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i) {
      value |= std::to_integer<std::uint32_t>(bytes_.data()[i]) << (8 * i);
    }
    return value;
  }

  ByteQueue bytes_;
  std::uint32_t bad_length_ = 0;
};

}  // namespace kolo::tcp
