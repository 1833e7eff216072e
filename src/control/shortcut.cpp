// SPDX-License-Identifier: Apache-2.0
#include "control/shortcut.hpp"

#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace kolo::control {
namespace {

/// A step of a multiplicative hash (the finalizer of MurmurHash3): good enough for a few words, and short.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0xff51afd7ed558ccdU;
  return hash ^ (hash >> 33);
}

std::uint64_t bits_of(double value) noexcept {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

Shortcut::Tag Shortcut::tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op, double prescale,
                               double postscale, int root) noexcept {
  std::uint64_t hash =
      mix(0x9e3779b97f4a7c15U, static_cast<std::uint64_t>(root) << 32 | static_cast<std::uint64_t>(kind) << 24 |
                                   static_cast<std::uint64_t>(op) << 16 | static_cast<std::uint64_t>(dtype) << 8 |
                                   shape.rank());
  for (const std::int64_t extent : shape) hash = mix(hash, static_cast<std::uint64_t>(extent));
  return mix(mix(hash, bits_of(prescale)), bits_of(postscale)) & kTagMask;
}

Shortcut::Shortcut(core::ShortcutMemory memory) : memory_(std::move(memory)) {
  const int own = memory_.local_rank();
  KOLO_CHECK(own >= 0 && own < memory_.ranks()) << "local rank " << own << " of " << memory_.ranks();
  for (core::Round call = 0; call < 2; ++call) memory_.word(own, call).store(by_log(0), std::memory_order_release);
  give(0);
}

void Shortcut::begin(core::Round call) noexcept {
  KOLO_CHECK(call >= call_) << "call " << call << " after " << call_;
  call_ = call;
  seen_ = 0;
  verdict_ = Verdict::undecided;
}

void Shortcut::speak(Tag tag) noexcept {
  word_ = spoken(call_, tag);
  std::atomic<std::uint64_t>& at = memory_.word(memory_.local_rank(), call_);
  std::uint64_t before = at.load(std::memory_order_relaxed);
  // The word is of an older call, unless a peer has demoted this one.
  while (before != by_log(call_) && !at.compare_exchange_weak(before, word_, std::memory_order_acq_rel)) {
  }
}

Shortcut::Verdict Shortcut::look() noexcept {
  if (verdict_ != Verdict::undecided) return verdict_;
  for (; seen_ < memory_.ranks(); ++seen_) {
    const std::atomic<std::uint64_t>& at = memory_.word(seen_, call_);
    std::uint64_t word = at.load(std::memory_order_acquire);
    if (word == word_) continue;
    const bool is_given = memory_.given(seen_).load(std::memory_order_acquire) >= call_;
    if (is_given) word = at.load(std::memory_order_acquire);  // it may have spoken before it gave the call
    if (is_given && word == word_) continue;
    if (is_given || word == by_log(call_)) return verdict_ = Verdict::by_log;
    // Another signature, or a word of long ago, which looks the same.
    if (word >> kTagBits == word_ >> kTagBits) return demote();
    return Verdict::undecided;
  }
  return verdict_ = Verdict::together;
}

Shortcut::Verdict Shortcut::demote() noexcept {
  if (verdict_ != Verdict::undecided) return verdict_;
  bool together = true;
  for (int rank = 0; rank < memory_.ranks(); ++rank) {
    std::atomic<std::uint64_t>& at = memory_.word(rank, call_);
    std::uint64_t word = at.load(std::memory_order_acquire);
    while (word != word_ && word != by_log(call_)) {
      if (at.compare_exchange_weak(word, by_log(call_), std::memory_order_acq_rel)) word = by_log(call_);
    }
    together = together && word == word_;
  }
  return verdict_ = together ? Verdict::together : Verdict::by_log;
}

}  // namespace kolo::control
