// SPDX-License-Identifier: Apache-2.0
//
// The shortcut: short blocking calls without a name, inside one node, without the log. A rank stores one word, with its
// input beside it, which says "ready for this". When all words are there, each rank takes what it needs from all inputs
// by itself (engine/small_calls.hpp). This file is the protocol on the shared memory. Nothing here waits.
//
// Numbers. A call is the number that it has in its rank's sequence (messages.hpp, "Sequences"). Asynchronous calls have
// numbers, too, and go by the log.
//
// Memory. A rank has two *lines*, for odd and for even calls, a payload beside each, and one *given* word. A line
// begins with its *word*. The rest of the line holds inputs of up to 120 bytes, the payload longer ones.
//
//   spoken   In the line: this rank makes call k with this signature, and waits. Only this rank writes it.
//   by log   In the line: call k goes by the log. Only a peer writes it, over a word of an older call, or over one of k
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
// That is a compare-and-swap, as speaking is, so a rank speaks before it, or finds it. Dead ranks, and those that have
// left or joined, never speak; their peers end in the log.
//
// When a rank may speak k, and so read and write lines: only when it knows that its call k - 1 is *over*. (Otherwise it
// gives k to the log.) Then every member has made k - 1. A rank makes a call only when it has ended its part here in
// all earlier ones. So nobody looks at lines of k - 2 and earlier any more, and those of k may be written over them.
// Lines of k - 1 are the other ones of the pair. The next user of this pair is k + 2, for which k + 1 must be over, so
// every member has ended k. The engine closes the shortcut where a call can be over that a member has not made: when a
// rank has left, and after a fatal error. It is closed, too, while a rank has joined, only because waiting for it is
// useless.
//
// A rank gives its first call of a new set to the log. When that is over, all members have made their ends of the
// shortcut in the set's memory, which others had before.
//
// No two calls of one signature have the same word. Words of different signatures are equal by chance: one in 2^48 of
// the mistakes that a program makes. Even then nothing but this memory and the caller's own buffers is touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/columns.hpp"
#include "core/signature.hpp"

namespace kolo::control {

/// One rank's end of it. One thread at a time, but for `give`.
class Shortcut {
 public:
  using Tag = std::uint64_t;
  enum class Verdict : std::uint8_t { undecided, together, by_log };

  /// A hash of all that must agree across ranks. `shape`: the shape of the signature.
  static Tag tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op = ReduceOp::sum,
                    double prescale = 1, double postscale = 1, int root = 0) noexcept;

  /// `columns`: of the set's ranks, page aligned, of `column_bytes` each; they outlive it. `capacity`: the longest
  /// input that a payload holds.
  Shortcut(base::Columns columns, std::size_t capacity, int local_rank);
  /// A multiple of the page size.
  [[nodiscard]] static std::size_t column_bytes(std::size_t capacity) noexcept;

  [[nodiscard]] int ranks() const noexcept { return columns_.size(); }
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Begins a call, greater than all before; or the last one again, in which this rank has not spoken. Now this rank's
  /// room and payload may be written.
  void begin(core::Round call) noexcept;
  /// Says this rank's word, once it has begun. Afterwards the verdict may be asked for.
  void speak(Tag tag) noexcept;
  /// A hint, once this rank has spoken: the next call's input may be as long as this.
  void expect(std::size_t bytes) const noexcept;
  /// This rank has given the call to the log. Its part here in all earlier ones has ended. Any thread, in the order of
  /// the calls.
  void give(core::Round call) noexcept { given(local_rank_).store(call, std::memory_order_release); }

  /// Looks at the peers' words. Costs one line for each peer that has not been seen to speak.
  [[nodiscard]] Verdict look() noexcept;
  /// Decides: makes the call go by the log unless it is decided already.
  [[nodiscard]] Verdict demote() noexcept;

  /// Places for a rank's input: kRoom bytes in its line, aligned to 8, and `capacity()` bytes elsewhere, aligned to 64.
  /// The own ones are written between `begin` and `speak`; the peers' are read between the verdict `together` and the
  /// end of the call.
  static constexpr std::size_t kRoom = 120;
  [[nodiscard]] std::byte* room(int local_rank) const noexcept { return line(local_rank, call_).room; }
  [[nodiscard]] std::byte* payload(int local_rank) const noexcept { return payload(local_rank, call_); }

 private:
  struct Line {
    std::atomic<std::uint64_t> word;
    std::byte room[kRoom];
  };
  // From line to line: processors fetch the other half of 128 bytes as well.
  static constexpr std::size_t kStride = 128;
  static constexpr std::size_t kHead = 3 * kStride;  // two lines, and the given word
  static constexpr int kTagBits = 48;
  static constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;
  static constexpr std::uint64_t kByLog = std::uint64_t{1} << 63;

  static constexpr std::uint64_t by_log(core::Round call) noexcept { return kByLog | call; }
  /// The last 15 bits of the number stand before the tag. The others are added to it, so that the words of one
  /// signature are all different.
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
  std::uint64_t word_ = 0;  // what this rank has spoken in it
  int seen_ = 0;            // local ranks below this have said the same as this rank
  Verdict verdict_ = Verdict::undecided;
};

}  // namespace kolo::control
