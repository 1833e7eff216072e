// SPDX-License-Identifier: Apache-2.0
//
// Bytes that come in at the end and leave at the front, contiguous in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "control/codec.hpp"

namespace kolo::tcp {

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

}  // namespace kolo::tcp
