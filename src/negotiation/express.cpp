// SPDX-License-Identifier: Apache-2.0
#include "negotiation/express.hpp"

#include <algorithm>
#include <cstring>

#include "base/check.hpp"

namespace kolo::negotiation {
namespace {

constexpr std::size_t kPage = 4096;
// Lines lie two apart: processors fetch the other half of 128 bytes as well, and the two are in use by turns.
constexpr std::size_t kStride = 128;
constexpr int kTagBits = 48;
constexpr std::uint64_t kTagMask = (std::uint64_t{1} << kTagBits) - 1;

constexpr std::size_t round_up(std::size_t value, std::size_t to) noexcept { return (value + to - 1) / to * to; }

constexpr std::uint64_t pack(std::uint64_t call, Express::Tag tag) noexcept { return call << kTagBits | tag; }
constexpr bool same_call(std::uint64_t a, std::uint64_t b) noexcept { return a >> kTagBits == b >> kTagBits; }

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

struct Express::Line {
  static constexpr std::size_t kRoom = 56;
  std::atomic<std::uint64_t> word;
  std::byte room[kRoom];
};

// In memory, a rank after the other from a page of its own: the two lines, then the two payloads.
std::size_t ExpressShape::bytes() const noexcept {
  return static_cast<std::size_t>(ranks) * round_up(2 * kStride + 2 * round_up(payload_bytes, kStride), kPage);
}

Express::Tag Express::tag_of(ReduceOp op, DType dtype, const Shape& shape, double prescale, double postscale) noexcept {
  std::uint64_t hash = mix(0x9e3779b97f4a7c15U, static_cast<std::uint64_t>(op) << 16 |
                                                    static_cast<std::uint64_t>(dtype) << 8 | shape.rank());
  for (const std::int64_t extent : shape) hash = mix(hash, static_cast<std::uint64_t>(extent));
  hash = mix(mix(hash, bits_of(prescale)), bits_of(postscale)) & kTagMask;
  return hash == kByLog ? 1 : hash;
}

Express::Express(std::byte* memory, const ExpressShape& shape, int local_rank)
    : memory_(memory), ranks_(shape.ranks), local_rank_(local_rank),
      capacity_(std::max(shape.payload_bytes, Line::kRoom)),
      rank_bytes_(shape.bytes() / static_cast<std::size_t>(shape.ranks)),
      payload_bytes_(round_up(shape.payload_bytes, kStride)) {
  static_assert(sizeof(Line) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);
  KOLO_CHECK(reinterpret_cast<std::uintptr_t>(memory) % kStride == 0);
  KOLO_CHECK(local_rank >= 0 && local_rank < shape.ranks) << "local rank " << local_rank << " of " << shape.ranks;
}

std::byte* Express::column(int local_rank) const noexcept {
  return memory_ + static_cast<std::size_t>(local_rank) * rank_bytes_;
}

Express::Line& Express::line(int local_rank) const noexcept {
  return *reinterpret_cast<Line*>(column(local_rank) + call_ % 2 * kStride);
}

std::byte* Express::place(int local_rank, std::size_t bytes) const noexcept {
  if (bytes <= Line::kRoom) return line(local_rank).room;
  return column(local_rank) + 2 * kStride + call_ % 2 * payload_bytes_;
}

void Express::say(Tag tag, const void* input, std::size_t bytes) noexcept {
  KOLO_CHECK(bytes <= capacity_) << bytes << " bytes for an express of " << capacity_;
  ++call_;
  word_ = pack(call_, tag);
  seen_ = 0;
  if (bytes > 0) std::memcpy(place(local_rank_, bytes), input, bytes);
  std::uint64_t& before = own_line_[call_ % 2];
  if (line(local_rank_).word.compare_exchange_strong(before, word_, std::memory_order_acq_rel)) {
    before = word_;
    verdict_ = tag == kByLog ? Verdict::by_log : Verdict::undecided;
    return;
  }
  KOLO_CHECK(before == pack(call_, kByLog)) << "somebody else wrote into an express line";
  verdict_ = Verdict::by_log;  // a peer was not willing to wait any longer
}

Express::Verdict Express::look() noexcept {
  if (verdict_ != Verdict::undecided) return verdict_;
  for (; seen_ < ranks_; ++seen_) {
    const std::uint64_t word = line(seen_).word.load(std::memory_order_acquire);
    if (word == word_) continue;
    if (!same_call(word, word_)) return Verdict::undecided;
    return verdict_ = Verdict::by_log;
  }
  return verdict_ = Verdict::together;
}

Express::Verdict Express::demote() noexcept {
  while (look() == Verdict::undecided) {
    std::atomic<std::uint64_t>& word = line(seen_).word;
    std::uint64_t before = word.load(std::memory_order_acquire);
    if (same_call(before, word_)) continue;  // spoken meanwhile: look again
    if (word.compare_exchange_strong(before, pack(call_, kByLog), std::memory_order_acq_rel))
      verdict_ = Verdict::by_log;
  }
  return verdict_;
}

const std::byte* Express::input_of(int local_rank, std::size_t bytes) const noexcept {
  return place(local_rank, bytes);
}

}  // namespace kolo::negotiation
