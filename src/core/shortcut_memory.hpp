// SPDX-License-Identifier: Apache-2.0
//
// The memory of the shortcut (control/shortcut.hpp) in one set. Each rank of the node has a column of it:
//
//   2 lines     for odd and for even calls, of 128 bytes: a *word*, and space for a short input beside it. A peer that
//               fetches the word gets the input with it
//   given word  one more line
//   2 payloads  for odd and for even calls: a longer input
//
// Control reads and writes the words (control/shortcut.hpp), data the inputs (data/small_calls.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/columns.hpp"
#include "base/machine.hpp"
#include "core/signature.hpp"

namespace kolo::core {

class ShortcutMemory {
 public:
  using Word = std::atomic<std::uint64_t>;
  /// Bytes of an input that fits beside the word.
  static constexpr std::size_t kInlineBytes = 120;

  /// `columns`: of the set's ranks, page aligned, of `column_bytes` each; they outlive it. `capacity`: the longest
  /// input that a payload holds.
  ShortcutMemory(base::Columns columns, std::size_t capacity, int local_rank)
      : columns_(std::move(columns)), local_rank_(local_rank), capacity_(capacity),
        payload_bytes_(base::round_up(capacity, kStride)) {}
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t column_bytes(std::size_t capacity) noexcept {
    return base::round_up(kHead + 2 * base::round_up(capacity, kStride), base::kPageBytes);
  }

  [[nodiscard]] int ranks() const noexcept { return columns_.size(); }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  [[nodiscard]] Word& word(int local_rank, Round call) const noexcept { return line(local_rank, call).word; }
  [[nodiscard]] Word& given(int local_rank) const noexcept {
    return *reinterpret_cast<Word*>(columns_[local_rank] + 2 * kStride);
  }
  /// kInlineBytes bytes, aligned to 8.
  [[nodiscard]] std::byte* inlined(int local_rank, Round call) const noexcept { return line(local_rank, call).inlined; }
  /// `capacity()` bytes, aligned to 64.
  [[nodiscard]] std::byte* payload(int local_rank, Round call) const noexcept {
    return columns_[local_rank] + kHead + call % 2 * payload_bytes_;
  }

 private:
  // From line to line: processors fetch the other half of 128 bytes as well.
  static constexpr std::size_t kStride = 128;
  static constexpr std::size_t kHead = 3 * kStride;  // two lines, and the given word
  struct Line {
    Word word;
    std::byte inlined[kInlineBytes];
  };
  static_assert(sizeof(Line) == kStride && Word::is_always_lock_free);

  [[nodiscard]] Line& line(int local_rank, Round call) const noexcept {
    return *reinterpret_cast<Line*>(columns_[local_rank] + call % 2 * kStride);
  }

  base::Columns columns_;
  int local_rank_;
  std::size_t capacity_;
  std::size_t payload_bytes_;  // from one payload to the other
};

}  // namespace kolo::core
