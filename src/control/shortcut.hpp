// SPDX-License-Identifier: Apache-2.0
//
// The shortcut: how short blocking calls without a name avoid the log inside one node. A rank stores one word, which
// means "ready for this call", with its input beside it. When all words are there, each rank takes what it needs from
// all inputs (data/small_calls.hpp). This file is the protocol of the words. Nothing here waits.
//
// Numbers. A call is identified by its number in its rank's sequence (messages.hpp, "Sequences"). Asynchronous calls
// have numbers, too, and always use the log.
//
// Memory (core/shortcut_memory.hpp). A rank has two *lines*, for odd and for even calls, each with a *word* and with
// memory for an input beside it, and one *given* word.
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
// member has ended k. The engine closes the shortcut if a call can be over that a member has not made: when a rank has
// left, and after a fatal error. It also closes it while a rank has joined, because waiting for that rank is useless.
//
// A rank gives its first call of a new set to the log. When that call is over, all members have set up the shortcut in
// the set's memory, which another set may have used before.
//
// No two calls of one signature have the same word. If ranks call with different signatures by mistake, the words are
// equal with a probability of 2^-48. Even then only this memory and the caller's own buffers are accessed.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/shortcut_memory.hpp"
#include "core/signature.hpp"

namespace kolo::control {

/// One rank's access to the shortcut. One thread at a time, except for `give`.
class Shortcut {
 public:
  using Tag = std::uint64_t;
  enum class Verdict : std::uint8_t { undecided, together, by_log };

  /// A hash of all that must agree across ranks. `shape`: the shape of the signature.
  static Tag tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op = ReduceOp::sum,
                    double prescale = 1, double postscale = 1, int root = 0) noexcept;

  /// Makes this rank's words. Peers may look at them once they know that it has.
  explicit Shortcut(core::ShortcutMemory memory);

  /// Begins a call. Its number is greater than all before, or that of the last call again if this rank has not spoken
  /// in it. From here until it speaks this rank writes its input.
  void begin(core::Round call) noexcept;
  /// Stores this rank's word in the call that it has begun. Then `look` may be called.
  void speak(Tag tag) noexcept;
  /// This rank has given the call to the log. Its part in all earlier calls has ended. Any thread, in the order of the
  /// calls.
  void give(core::Round call) noexcept { memory_.given(memory_.local_rank()).store(call, std::memory_order_release); }

  /// Looks at the peers' words. Reads one cache line for each peer whose word has not been seen yet. `together`: from
  /// here until its part of the call ends this rank may read all inputs.
  [[nodiscard]] Verdict look() noexcept;
  /// Ends the wait: the call uses the log, unless its verdict is decided already.
  [[nodiscard]] Verdict demote() noexcept;

 private:
  static constexpr int kTagBits = 48;
  static constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;
  static constexpr std::uint64_t kByLog = std::uint64_t{1} << 63;

  static constexpr std::uint64_t by_log(core::Round call) noexcept { return kByLog | call; }
  /// The word's upper bits are the last 15 bits of the number. The other bits of the number are added to the tag, so
  /// that all words of one signature differ.
  static constexpr std::uint64_t spoken(core::Round call, Tag tag) noexcept {
    return (call << kTagBits & ~kByLog) | ((tag + (call >> 15)) & kTagMask);
  }

  const core::ShortcutMemory memory_;
  core::Round call_ = 0;
  std::uint64_t word_ = 0;  // this rank's word of the current call
  int seen_ = 0;            // all local ranks below this one have stored the same word
  Verdict verdict_ = Verdict::undecided;
};

}  // namespace kolo::control
