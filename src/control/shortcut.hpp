// SPDX-License-Identifier: Apache-2.0
//
// The shortcut: short blocking calls without a name, inside one node, without the log. A rank stores one word, with its
// input beside it, which says "ready for this". When all words are there, each rank takes what it needs from all inputs
// by itself (data/small_calls.hpp). This file is the protocol of the words. Nothing here waits.
//
// Numbers. A call is the number that it has in its rank's sequence (messages.hpp, "Sequences"). Asynchronous calls have
// numbers, too, and go by the log.
//
// Memory (core/shortcut_memory.hpp). A rank has two *lines*, for odd and for even calls, each with a *word* and with
// memory for an input beside it, and one *given* word.
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
#include <cstdint>

#include "core/shortcut_memory.hpp"
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

  /// Makes this rank's words. Peers may look at them once they know that it has.
  explicit Shortcut(core::ShortcutMemory memory);

  /// Begins a call, greater than all before; or the last one again, in which this rank has not spoken. From here until
  /// it speaks this rank writes its input.
  void begin(core::Round call) noexcept;
  /// Says this rank's word, once it has begun. Afterwards the verdict may be asked for.
  void speak(Tag tag) noexcept;
  /// This rank has given the call to the log. Its part here in all earlier ones has ended. Any thread, in the order of
  /// the calls.
  void give(core::Round call) noexcept { memory_.given(memory_.local_rank()).store(call, std::memory_order_release); }

  /// Looks at the peers' words. Costs one line for each peer that has not been seen to speak. `together`: from here
  /// until its part of the call ends this rank may read all inputs.
  [[nodiscard]] Verdict look() noexcept;
  /// Decides: makes the call go by the log unless it is decided already.
  [[nodiscard]] Verdict demote() noexcept;

 private:
  static constexpr int kTagBits = 48;
  static constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;
  static constexpr std::uint64_t kByLog = std::uint64_t{1} << 63;

  static constexpr std::uint64_t by_log(core::Round call) noexcept { return kByLog | call; }
  /// The last 15 bits of the number stand before the tag. The others are added to it, so that the words of one
  /// signature are all different.
  static constexpr std::uint64_t spoken(core::Round call, Tag tag) noexcept {
    return (call << kTagBits & ~kByLog) | ((tag + (call >> 15)) & kTagMask);
  }

  const core::ShortcutMemory memory_;
  core::Round call_ = 0;
  std::uint64_t word_ = 0;  // what this rank has spoken in it
  int seen_ = 0;            // local ranks below this have said the same as this rank
  Verdict verdict_ = Verdict::undecided;
};

}  // namespace kolo::control
