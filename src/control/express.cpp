// SPDX-License-Identifier: Apache-2.0
#include "control/express.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cache_line.hpp"
#include "base/check.hpp"
#include "base/round_up.hpp"

namespace kolo::control {
namespace {

/// A step of a multiplicative hash (the finalizer of MurmurHash3): good enough for a handful of words, and short.
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

std::size_t Express::column_bytes(std::size_t capacity) noexcept {
  return base::round_up(2 * kStride + 2 * base::round_up(capacity, kStride), base::kPageBytes);
}

Express::Tag Express::tag_of(core::CollectiveKind kind, DType dtype, const Shape& shape, ReduceOp op, double prescale,
                             double postscale, int root) noexcept {
  std::uint64_t hash =
      mix(0x9e3779b97f4a7c15U, static_cast<std::uint64_t>(root) << 32 | static_cast<std::uint64_t>(kind) << 24 |
                                   static_cast<std::uint64_t>(op) << 16 | static_cast<std::uint64_t>(dtype) << 8 |
                                   shape.rank());
  for (const std::int64_t extent : shape) hash = mix(hash, static_cast<std::uint64_t>(extent));
  hash = mix(mix(hash, bits_of(prescale)), bits_of(postscale)) & kTagMask;
  return hash == kByLog ? 1 : hash;
}

Express::Express(base::Columns columns, std::size_t capacity, int local_rank)
    : columns_(std::move(columns)), local_rank_(local_rank), capacity_(capacity),
      payload_bytes_(base::round_up(capacity, kStride)) {
  static_assert(sizeof(Line) == kStride && std::atomic<std::uint64_t>::is_always_lock_free);
  KOLO_CHECK(local_rank >= 0 && local_rank < ranks()) << "local rank " << local_rank << " of " << ranks();
  KOLO_CHECK(reinterpret_cast<std::uintptr_t>(columns_[local_rank]) % kStride == 0);
  for (std::uint64_t call = 0; call < 2; ++call) line(local_rank, call).word.store(0, std::memory_order_release);
}

void Express::begin() noexcept {
  ++call_;
  seen_ = 0;
  verdict_ = Verdict::undecided;
}

void Express::speak(Tag tag) noexcept {
  std::uint64_t& own = own_words_[call_ % 2];
  const std::uint64_t word = pack(call_, tag);
  if (line(local_rank_, call_).word.compare_exchange_strong(own, word, std::memory_order_acq_rel)) {
    own = word;
    return;
  }
  KOLO_CHECK(own == pack(call_, kByLog)) << "somebody else wrote into an express line";
}

/// The lines of the next call are taken from the peers' caches while this rank waits for their words. A peer that is
/// still copying from them, in the call before this one, asks for them once more. Not those of a long payload, which
/// may be written past the cache.
void Express::expect(std::size_t bytes) const noexcept {
  constexpr std::size_t kMost = 1 << 10;
  constexpr std::size_t kLong = 8 << 10;
  base::claim_lines(reinterpret_cast<std::byte*>(&line(local_rank_, call_ + 1)), sizeof(Line));
  if (bytes <= kRoom || bytes >= kLong) return;
  base::claim_lines(payload(local_rank_, call_ + 1), std::min(bytes, kMost));
}

Express::Verdict Express::look() noexcept {
  if (verdict_ != Verdict::undecided) return verdict_;
  const std::uint64_t own = own_words_[call_ % 2];
  if (own == pack(call_, kByLog)) return verdict_ = Verdict::by_log;
  for (; seen_ < ranks(); ++seen_) {
    const std::uint64_t word = line(seen_, call_).word.load(std::memory_order_acquire);
    if (word == own) continue;
    if (!same_call(word, own)) return Verdict::undecided;
    return verdict_ = Verdict::by_log;
  }
  return verdict_ = Verdict::together;
}

Express::Verdict Express::demote() noexcept {
  if (look() != Verdict::undecided) return verdict_;
  const std::uint64_t own = own_words_[call_ % 2];
  const std::uint64_t by_log = pack(call_, kByLog);
  bool together = true;
  for (int rank = 0; rank < ranks(); ++rank) {
    std::atomic<std::uint64_t>& at = line(rank, call_).word;
    std::uint64_t word = at.load(std::memory_order_acquire);
    while (!same_call(word, by_log)) {
      if (at.compare_exchange_weak(word, by_log, std::memory_order_acq_rel)) word = by_log;
    }
    together = together && word == own;
  }
  return verdict_ = together ? Verdict::together : Verdict::by_log;
}

void Express::resume(std::uint64_t call) noexcept {
  call_ = call;
  for (const std::uint64_t over : {call, call + 1}) {
    std::uint64_t& own = own_words_[over % 2] = pack(over, kByLog);
    line(local_rank_, over).word.store(own, std::memory_order_release);
  }
}

}  // namespace kolo::control
