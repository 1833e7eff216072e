// SPDX-License-Identifier: Apache-2.0
//
// The express: the route of short blocking calls without a name inside one node, which avoids the log. A rank stores
// one word, which means "ready for this call", with its input beside it. When all words are there, each rank takes what
// it needs from all inputs (engine/express_data.hpp). This file is the protocol in shared memory. Nothing here waits.
//
// Numbers. A call is identified by its number in its rank's sequence (messages.hpp, "Sequences"). Asynchronous calls
// have numbers, too, and always use the log.
//
// Memory. A rank has two *lines*, for odd and for even calls, a payload beside each, and one *given* word. A line
// begins with its *word*. The rest of the line holds inputs of up to 120 bytes, the payload longer ones.
//
//   spoken   In the line: this rank makes call k with this signature, and waits. Only this rank writes it.
//   by log   In the line: call k uses the log. Only a peer writes it, over a word of an older call, or over a word of k
//            with another signature.
//   given    The last call that this rank has given to the log. It grows, and needs no line.
//
// Verdict on call k, the same on all ranks that ask:
//
//   together  All have spoken k with the same signature. Nobody overwrites such a word: a peer that speaks k, too, has
//             said the same, or the words are not all alike.
//   by log    A line says so, or a rank has given k or a later call, and has not spoken k. It never will: a rank speaks
//             k before it gives a later call, and a line is read again after the given word.
//
// A rank that has waited long enough *demotes* the call: it writes "by log" over all words that differ from its own.
// Demoting and speaking are compare-and-swaps, so a rank either speaks before it, or finds "by log". Ranks that are
// dead, or have left or joined, never speak; their peers' calls end in the log.
//
// Reuse of lines. A rank may speak k, and so read and write lines, only when it knows that its call k - 1 is *over*;
// otherwise it gives k to the log. Then every member has made k - 1, and a rank makes a call only when it has ended its
// part in all earlier ones. No rank therefore reads lines of k - 2 or earlier any more, and k may overwrite them. Call
// k - 1 uses the other line of the pair. The next user of k's line is k + 2, for which k + 1 must be over, so every
// member has ended k. The engine closes the express if a call can be over that a member has not made: when a rank has
// left, and after a fatal error. It also closes it while a rank has joined, because waiting for that rank is useless.
//
// A rank gives its first call of a new set to the log. When that call is over, all members have set up the express in
// the set's memory, which another set may have used before.
//
// No two calls of one signature have the same word. If ranks call with different signatures by mistake, the words are
// equal with a probability of 2^-48. Even then only this memory and the caller's own buffers are accessed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/columns.hpp"
#include "core/signature.hpp"

namespace kolo::control {

/// One rank's access to the express. One thread at a time, except for `give`.
class Express {
 public:
  using Tag = std::uint64_t;
  enum class Verdict : std::uint8_t { undecided, together, by_log };

  /// A hash of all that must agree across ranks. `shape`: the shape of the signature.
  static Tag tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op = ReduceOp::sum,
                    double prescale = 1, double postscale = 1, int root = 0) noexcept;

  /// `columns`: of the set's ranks, page aligned, of `column_bytes` each; they outlive it. `capacity`: the longest
  /// input that a payload holds.
  Express(base::Columns columns, std::size_t capacity, int local_rank);
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t column_bytes(std::size_t capacity) noexcept;

  [[nodiscard]] int ranks() const noexcept { return columns_.size(); }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Begins a call. Its number is greater than all before, or that of the last call again if this rank has not spoken
  /// in it. Then this rank's room and payload may be written.
  void begin(core::Round call) noexcept;
  /// Stores this rank's word in the call that it has begun. Then `look` may be called.
  void speak(Tag tag) noexcept;
  /// A hint, after `speak`: the next call's input may have this many bytes.
  void expect(std::size_t bytes) const noexcept;
  /// This rank has given the call to the log. Its part in all earlier calls has ended. Any thread, in the order of the
  /// calls.
  void give(core::Round call) noexcept { given(local_rank_).store(call, std::memory_order_release); }

  /// Looks at the peers' words. Reads one cache line for each peer whose word has not been seen yet.
  [[nodiscard]] Verdict look() noexcept;
  /// Ends the wait: the call uses the log, unless its verdict is decided already.
  [[nodiscard]] Verdict demote() noexcept;

  /// Places for a rank's input: kRoom bytes in its line, aligned to 8, and `capacity()` bytes elsewhere, aligned to 64.
  /// A rank writes its own places between `begin` and `speak`, and reads the peers' places between the verdict
  /// `together` and the end of the call.
  static constexpr std::size_t kRoom = 120;
  [[nodiscard]] std::byte* room(int local_rank) const noexcept { return line(local_rank, call_).room; }
  [[nodiscard]] std::byte* payload(int local_rank) const noexcept { return payload(local_rank, call_); }

 private:
  struct Line {
    std::atomic<std::uint64_t> word;
    std::byte room[kRoom];
  };
  // The distance between lines: processors fetch both halves of 128 bytes.
  static constexpr std::size_t kStride = 128;
  static constexpr std::size_t kHead = 3 * kStride;  // two lines, and the given word
  static constexpr int kTagBits = 48;
  static constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;
  static constexpr std::uint64_t kByLog = std::uint64_t{1} << 63;

  static constexpr std::uint64_t by_log(core::Round call) noexcept { return kByLog | call; }
  /// The word's upper bits are the last 15 bits of the number. The other bits of the number are added to the tag, so
  /// that all words of one signature differ.
  static constexpr std::uint64_t spoken(core::Round call, Tag tag) noexcept {
    return (call << kTagBits & ~kByLog) | ((tag + (call >> 15)) & kTagMask);
  }
  [[nodiscard]] Line& line(int local_rank, core::Round call) const noexcept {
    return *reinterpret_cast<Line*>(columns_[local_rank] + call % 2 * kStride);
  }
  [[nodiscard]] std::atomic<std::uint64_t>& given(int local_rank) const noexcept {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(columns_[local_rank] + 2 * kStride);
  }
  [[nodiscard]] std::byte* payload(int local_rank, core::Round call) const noexcept {
    return columns_[local_rank] + kHead + call % 2 * payload_bytes_;
  }

  const base::Columns columns_;
  const int local_rank_;
  const std::size_t capacity_;
  const std::size_t payload_bytes_;  // from one payload to the other
  core::Round call_ = 0;
  std::uint64_t word_ = 0;  // this rank's word of the current call
  int seen_ = 0;            // all local ranks below this one have stored the same word
  Verdict verdict_ = Verdict::undecided;
};

}  // namespace kolo::control
