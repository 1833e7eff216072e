// SPDX-License-Identifier: Apache-2.0
//
// A copy from the memory of one rank, the *owner*, into that of another one, the *reader*, made by both at once.
//
// A rank that reads a peer's memory copies with one CPU, and the peer usually waits for the end. With this class the
// peer helps: the reader takes pieces from the front and reads them; the owner takes pieces from the back and writes
// them. Each takes the next piece when it has finished one, so the faster rank copies more.
//
// The state of such a copy lies in memory of the node and belongs to the reader: the reader opens it, tells the owner
// its number, and may open it for another copy afterwards. Both ranks change only one word: the reader's front and the
// owner's back, in pieces, whether the owner writes, and the copy's number, so that an owner with an old number takes
// nothing.
//
// Giving up. An owner that gives up takes no more pieces; another message tells the reader, and the pieces written so
// far are valid. A reader that gives up must be sure that the owner does not write into its memory any more. It
// *revokes* the copy:
//
//   reader                                 owner
//   closes the word: no more pieces        takes a piece, and says that it writes
//   target := 0 bytes                      says which of its threads does
//   waits while the owner writes           target := where, and how much
//                                          looks whether the word is closed: then writes nothing
//                                          has the system write to `target`
//                                          says that it does not write any more
//
// All of these accesses are sequentially consistent, and the system reads `target` in the shared memory itself. An
// owner that is stopped before its system call therefore writes nothing when it goes on. An owner inside the system
// call ends the call, also when it is stopped or killed. If it is stopped then, and cannot say that it has finished,
// the reader finds that out (PeerMemory::may_be_writing), and goes on; this state is not used again. While the owner's
// thread runs, or waits for memory, the reader waits for the end of its piece, but at most for `kPatience`, because its
// caller holds locks that others need. After that nothing is known about the memory, which is a fatal error.
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
  /// The number of a copy, from `open`. The owner needs it to take part. 0: none.
  using Number = std::uint32_t;
  static constexpr int kNumberBits = 24;

  struct Piece {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };

  // -- the reader
  /// Begins a copy of `bytes`, more than 0, to `to`. No copy may be open. Returns 0 if there would be too many pieces.
  [[nodiscard]] Number open(std::byte* to, std::size_t bytes) noexcept;
  /// Takes the next piece to be read. A piece without bytes: all are taken.
  [[nodiscard]] Piece take() noexcept;
  /// Whether the owner is not writing. If so, and `take` still gives nothing, the copy is over.
  [[nodiscard]] bool is_idle() const noexcept;
  /// While it is not idle: whether the owner, a local rank, will not go on by itself, because it was stopped or has
  /// ended. Makes a system call.
  [[nodiscard]] bool is_stuck(const PeerMemory& memory, int owner) const noexcept;
  /// The result of `revoke`. `kept`: the owner was stopped, and writes nothing any more, but this state must not be
  /// opened again. `unsafe`: as `kept`, but the owner may still write.
  enum class Revoked : std::uint8_t { free, kept, unsafe };
  static constexpr std::chrono::seconds kPatience{2};
  /// Ends a copy that is not over, so that `owner`, a local rank, writes nothing any more. Waits for `patience` at
  /// most.
  [[nodiscard]] Revoked revoke(PeerMemory& memory, int owner, base::Duration patience = kPatience) noexcept;

  // -- the owner
  enum class Help : std::uint8_t { none, wrote, failed };
  /// Writes a piece of the copy of this number into the memory of `reader`, a local rank. `data_of` gives the address
  /// of a piece's data, or null if there is none. `none`: no piece is left. `failed`: it cannot be written, and the
  /// reader must read it, also if `data_of` throws.
  using DataOf = std::function<const std::byte*(const Piece&)>;
  [[nodiscard]] Help help(PeerMemory& memory, int reader, Number number, const DataOf& data_of) noexcept;

 private:
  [[nodiscard]] Piece pieces(std::uint64_t index, std::uint64_t count) const noexcept;
  [[nodiscard]] std::uint64_t share(std::uint64_t left) const noexcept;

  std::atomic<std::uint64_t> word_;
  std::atomic<std::uintptr_t> to_;
  std::atomic<std::size_t> bytes_;
  std::atomic<std::size_t> piece_;
  std::atomic<std::int32_t> writer_;  // the owner's thread that writes
  PeerMemory::Target target_;
};

/// Whether a piece lies within `bytes`. The state of a copy lies in memory that other processes write, so a piece must
/// be checked before it is used.
[[nodiscard]] constexpr bool is_within(const JointCopy::Piece& piece, std::size_t bytes) noexcept {
  return piece.begin <= bytes && piece.bytes <= bytes - piece.begin;
}

}  // namespace kolo::transport
