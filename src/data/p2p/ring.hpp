// SPDX-License-Identifier: Apache-2.0
//
// How frames lie in a ring of a node's memory: what its one writer stores, and what its one reader makes of it.
//
// A ring holds *records*, in cache lines: a word that says how long the record is, the frame's head and up to 8 bytes
// of data in the first line, and longer data behind it. The word is written last; before it the writer clears the word
// of the record to come. So the reader needs to look at one line to see that there is a frame, and finds a short
// message in it. A record does not go over the end of the ring: an empty one, a filler, fills what is left.
//
// Another process has written what is read here. So a word is compared with what a writer can have stored at that place
// before anything is read by it; the reader stays inside of the ring whatever is there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/machine.hpp"
#include "data/p2p/channels.hpp"
#include "data/p2p/frame.hpp"

namespace kolo::p2p {

inline constexpr std::size_t kLine = 64;

/// In memory of the node, zeroed.
struct Ring {
  static constexpr std::size_t kBytes = 128 << 10;
  /// The most data of a record.
  static constexpr std::size_t kPartBytes = kMostWholeBytes;

  alignas(kLine) std::atomic<std::uint64_t> read;   // by the reader
  alignas(kLine) std::atomic<std::uint32_t> waits;  // the writer found no room
  alignas(kLine) std::byte data[kBytes];

  /// Positions count bytes from the beginning, and never go back.
  [[nodiscard]] std::atomic<std::uint64_t>& word(std::uint64_t position) noexcept {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(data + position % kBytes);
  }
  [[nodiscard]] const std::atomic<std::uint64_t>& word(std::uint64_t position) const noexcept {
    return const_cast<Ring*>(this)->word(position);
  }
};

/// Of a record: what precedes the data, when that does not fit into the first line.
inline constexpr std::size_t kRecordHeadBytes = sizeof(std::uint64_t) + sizeof(Frame);
inline constexpr std::size_t kShortBytes = kLine - kRecordHeadBytes;
/// A record's bytes, by its data's.
constexpr std::size_t record_bytes(std::size_t data) noexcept {
  return data <= kShortBytes ? kLine : kLine + base::round_up(data, kLine);
}
/// Where a record's data begins.
constexpr std::size_t data_offset(std::size_t data) noexcept { return data <= kShortBytes ? kRecordHeadBytes : kLine; }

/// A record's word: its length, above that the data's, and whether it is a filler.
inline constexpr std::uint64_t kFiller = std::uint64_t{1} << 63;
inline constexpr int kLengthBits = 32;
constexpr std::uint64_t record_word(std::size_t data) noexcept {
  return static_cast<std::uint64_t>(data) << kLengthBits | record_bytes(data);
}
constexpr std::uint64_t filler_word(std::size_t bytes) noexcept { return kFiller | bytes; }

/// The filler that must precede a record of so many bytes at a position; 0: none.
constexpr std::size_t filler_before(std::uint64_t position, std::size_t record) noexcept {
  const std::size_t remaining = Ring::kBytes - position % Ring::kBytes;
  return record > remaining ? remaining : 0;
}

/// What a reader finds at a position.
struct Record {
  std::size_t bytes = 0;  ///< 0: nothing is there yet
  bool is_filler = false;
  Frame frame;
  const std::byte* data = nullptr;  ///< in the ring: valid until the reader says that it has read the record
  std::size_t data_bytes = 0;
};
/// Throws Error (transport) for what no writer stores there. `source` is the writer's rank.
[[nodiscard]] Record read_record(const Ring& ring, std::uint64_t position, int source);

}  // namespace kolo::p2p
