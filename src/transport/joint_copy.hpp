// SPDX-License-Identifier: Apache-2.0
//
// A copy from the memory of one rank, the *owner*, into that of another one, the *reader*, made by both at once.
//
// A rank that reads a peer's memory copies with one CPU, and mostly the peer waits for the end of it. So the peer
// helps: the reader takes pieces from the front, and reads them; the owner takes pieces from the back, and writes them.
// Both take the next one when they have done theirs, so whoever is faster, or has a CPU, copies more.
//
// The state of such a copy lies in memory of the node, and is the reader's: it opens it, tells the owner (by a ticket),
// and may open it for another copy when this one is over. All that both change is one word: the reader's front and the
// owner's back, in pieces, whether the owner writes, and the number of the copy, so that an owner that has an old
// ticket takes nothing.
//
// Giving up. An owner that gives up takes no more pieces; the reader hears of that in its own way, and what has been
// written is valid. A reader that gives up must know that nobody writes into its memory any more. It *revokes* the
// copy:
//
//   reader                                 owner
//   closes the word: no more pieces        takes a piece, and says that it writes
//   target := 0 bytes                      says which of its threads does
//   waits while the owner writes           target := where, and how much
//                                          looks whether the word is closed: then writes nothing
//                                          has the system write to `target`
//                                          says that it does not write any more
//
// All of these are sequentially consistent, and the system reads `target` where it lies, in the shared memory. So an
// owner that is stopped before its call of the system writes nothing when it goes on. One that is inside ends its call,
// also when it is being stopped or killed. If it is stopped then, and cannot say that it does not write any more, the
// reader sees that it is (PeerMemory::may_be_writing), and goes on; this state is not used again. While the owner's
// thread runs, or waits for memory, the reader waits for the end of its piece, but not for ever: its caller holds locks
// that others need. After `kPatience` nobody can promise anything about the memory any more, which is a fatal error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/clock.hpp"
#include "transport/peer_memory.hpp"

namespace kolo::transport {

/// The state, in memory of the node, zeroed. One thread of the reader at a time, and one of the owner.
class alignas(64) JointCopy {
 public:
  /// Of `open`: what the owner needs to have part in it. 0: none.
  using Number = std::uint32_t;
  static constexpr int kNumberBits = 24;

  struct Piece {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };

  // -- the reader
  /// Begins to copy so many bytes, more than 0, to here. No copy is open. No number, 0, where there would be too many
  /// pieces.
  [[nodiscard]] Number open(std::byte* to, std::size_t bytes) noexcept;
  /// The next piece to be read. One without bytes: all are taken.
  [[nodiscard]] Piece take() noexcept;
  /// Whether the owner is not writing. Then, when there is still nothing to take, the copy is over.
  [[nodiscard]] bool is_idle() const noexcept;
  /// While it is not idle: whether the owner, a local rank, will not go on by itself, because it was stopped or has
  /// ended. A call of the system.
  [[nodiscard]] bool is_stuck(const PeerMemory& memory, int owner) const noexcept;
  /// Of `revoke`. `kept`: the owner was stopped, and writes nothing any more, but the copy must not be opened again.
  /// `unsafe`: likewise, and it may still write.
  enum class Revoked : std::uint8_t { free, kept, unsafe };
  static constexpr std::chrono::seconds kPatience{2};
  /// Ends a copy that is not over, so that `owner`, a local rank, writes nothing any more. Waits for so long at most.
  [[nodiscard]] Revoked revoke(PeerMemory& memory, int owner, base::Duration patience = kPatience) noexcept;

  // -- the owner
  enum class Help : std::uint8_t { none, wrote, failed };
  /// Writes a piece of the copy of this number into the memory of `reader`, a local rank. `data_of` says where its data
  /// is; null: it has none. `none`: there is none left. `failed`: it cannot be written, the reader has to read it. What
  /// `data_of` throws is a failure.
  using DataOf = std::function<const std::byte*(const Piece&)>;
  [[nodiscard]] Help help(PeerMemory& memory, int reader, Number number, const DataOf& data_of) noexcept;

 private:
  [[nodiscard]] Piece pieces(std::uint64_t index, std::uint64_t count) const noexcept;
  [[nodiscard]] std::uint64_t share(std::uint64_t left) const noexcept;

  std::atomic<std::uint64_t> word_;
  std::atomic<std::uintptr_t> to_;
  std::atomic<std::size_t> bytes_;
  std::atomic<std::size_t> piece_;
  std::atomic<std::int32_t> writer_;  // the thread of the owner's
  PeerMemory::Target target_;
};

/// Whether a piece lies inside of so many bytes. The state of a copy lies in memory that other processes write, so
/// whoever uses a piece asks.
[[nodiscard]] constexpr bool is_within(const JointCopy::Piece& piece, std::size_t bytes) noexcept {
  return piece.begin <= bytes && piece.bytes <= bytes - piece.begin;
}

}  // namespace kolo::transport
