// SPDX-License-Identifier: Apache-2.0
//
// Messages through a ring of bytes: how they are cut into frames, and how they lie in memory. Positions are monotonic
// byte counts; the owner publishes them, and knows how far readers are (control/board.cpp).
//
// A frame is a 4-byte word - the payload's length, and a bit that says whether more parts of the same message follow -
// and the payload, padded to 8 bytes. Frames lie one after another and wrap around at the ring's end, possibly in the
// middle of a payload. A message longer than a quarter of the ring travels in parts. A message may therefore have any
// length, and a long one does not wait for an empty ring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/machine.hpp"
#include "control/codec.hpp"
#include "control/ranges.hpp"

namespace kolo::control {

class ByteRing {
 public:
  static constexpr std::size_t kFrameAlignment = 8;
  static constexpr std::size_t kWordBytes = sizeof(std::uint32_t);
  static constexpr std::size_t kSmallest = 64;

  /// `bytes` is a multiple of 64 and less than 8 GiB; the memory belongs to the caller.
  ByteRing(std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] static constexpr std::size_t frame_bytes(std::size_t payload) noexcept {
    return base::round_up(kWordBytes + payload, kFrameAlignment);
  }
  /// The longest payload of one frame: the whole frame is a quarter of the ring.
  [[nodiscard]] std::size_t longest_part() const noexcept {
    return bytes_ / 4 / kFrameAlignment * kFrameAlignment - kWordBytes;
  }

  /// Writes a frame, for which the caller knows that there is space; returns the position after it.
  std::uint64_t write(std::uint64_t position, ByteView part, bool more) const noexcept {
    const std::uint32_t word = static_cast<std::uint32_t>(part.size()) | (more ? kMore : 0);
    std::memcpy(data_ + position % bytes_, &word, kWordBytes);  // aligned to 8 in a multiple of 64: never wraps
    const std::size_t start = (position + kWordBytes) % bytes_;
    const std::size_t before_wrap = std::min(part.size(), bytes_ - start);
    if (before_wrap > 0) std::memcpy(data_ + start, part.data(), before_wrap);
    if (part.size() > before_wrap) std::memcpy(data_, part.data() + before_wrap, part.size() - before_wrap);
    return position + frame_bytes(part.size());
  }

  /// Appends a frame's payload to `message`; returns the position after it, and whether more parts follow. Another
  /// process has written the bytes up to `end`: throws Error (transport) if they are not valid frames.
  std::pair<std::uint64_t, bool> read(std::uint64_t position, std::uint64_t end, Bytes& message) const {
    require(position % kFrameAlignment == 0 && end - position <= bytes_, "a ring holds more than its bytes");
    std::uint32_t word = 0;
    std::memcpy(&word, data_ + position % bytes_, kWordBytes);
    const std::size_t payload = word & ~kMore;
    require(payload <= longest_part() && frame_bytes(payload) <= end - position, "a frame is longer than it can be");
    const std::size_t start = (position + kWordBytes) % bytes_;
    const std::size_t before_wrap = std::min(payload, bytes_ - start);
    message.insert(message.end(), data_ + start, data_ + start + before_wrap);
    message.insert(message.end(), data_, data_ + (payload - before_wrap));
    return {position + frame_bytes(payload), (word & kMore) != 0};
  }

 private:
  static constexpr std::uint32_t kMore = std::uint32_t{1} << 31;

  std::byte* data_;
  std::size_t bytes_;
};

/// The writer's state of a message that did not fit at once.
class PartWriter {
 public:
  /// Writes as many parts as there is space for, and moves `position` on; everything before `reusable` has been read.
  /// True once the last part is written. After false with parts written, the next call must bring the same message.
  bool write(const ByteRing& ring, std::uint64_t& position, std::uint64_t reusable, ByteView message) noexcept {
    KOLO_CHECK(written_ <= message.size()) << "another message in the middle of one";
    while (true) {
      const std::size_t part = std::min(message.size() - written_, ring.longest_part());
      if (position + ByteRing::frame_bytes(part) - reusable > ring.bytes()) return false;
      const bool more = written_ + part < message.size();
      position = ring.write(position, ByteView(message.data() + written_, part), more);
      written_ = more ? written_ + part : 0;
      if (!more) return true;
    }
  }

 private:
  std::size_t written_ = 0;  // bytes of the current message
};

/// The reader's state of a message whose last part has not come yet.
class PartReader {
 public:
  /// Reads frames up to `end` or the end of a message, and moves `position` on. True when `message` is one.
  bool read(const ByteRing& ring, std::uint64_t& position, std::uint64_t end, Bytes& message) {
    while (position != end) {
      const auto [after, more] = ring.read(position, end, gathered_);
      position = after;
      if (more) continue;
      message.swap(gathered_);
      gathered_.clear();
      return true;
    }
    return false;
  }

 private:
  Bytes gathered_;
};

}  // namespace kolo::control
