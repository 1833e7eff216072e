// SPDX-License-Identifier: Apache-2.0
//
// Cuts received bytes into frames: 4 bytes of length (little-endian) and the contents. It has no socket; link.hpp has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "control/codec.hpp"

namespace kolo::tcp {

/// Bytes that come in at the end and leave at the front, contiguous in memory.
class ByteQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }
  [[nodiscard]] std::size_t size() const noexcept { return end_ - begin_; }
  [[nodiscard]] const std::byte* data() const noexcept { return memory_.data() + begin_; }

  /// Removes bytes from the front. They stay readable until the next `room`.
  void drop(std::size_t bytes) noexcept { begin_ += bytes; }

  /// Free memory behind the last byte, of at least `bytes`; `commit` says how many of it have been filled.
  control::Bytes::pointer room(std::size_t bytes) {
    if (empty()) {
      begin_ = end_ = 0;
      if (memory_.size() > kKept && bytes <= kKept) control::Bytes(kKept).swap(memory_);
    }
    if (memory_.size() - end_ < bytes) make_room(bytes);
    return memory_.data() + end_;
  }
  [[nodiscard]] std::size_t free() const noexcept { return memory_.size() - end_; }
  void commit(std::size_t bytes) noexcept { end_ += bytes; }

  void append(const std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    std::memcpy(room(bytes), data, bytes);
    commit(bytes);
  }
  void clear() noexcept { begin_ = end_ = 0; }

 private:
  static constexpr std::size_t kKept = std::size_t{1} << 20;  // memory beyond this goes back when the queue is empty

  void make_room(std::size_t bytes) {
    // Bytes move only when at least half of the memory is free at the front; then each byte moves once on average.
    if (begin_ >= memory_.size() / 2 && memory_.size() - size() >= bytes) {
      std::memmove(memory_.data(), data(), size());
    } else {
      control::Bytes larger(std::max(size() + bytes, 2 * memory_.size()));
      if (!empty()) std::memcpy(larger.data(), data(), size());
      memory_.swap(larger);
    }
    end_ -= begin_;
    begin_ = 0;
  }

  control::Bytes memory_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

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
