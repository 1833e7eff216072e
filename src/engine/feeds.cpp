// SPDX-License-Identifier: Apache-2.0
#include "engine/feeds.hpp"

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"
#include "base/cpu_relax.hpp"
#include "base/round_up.hpp"

namespace kolo::engine {
namespace {

constexpr std::uint32_t kSlots = 4;
/// Of pieces: shorter ones cost as much for their two words as for their bytes, longer ones make the reader wait for
/// the first.
constexpr std::size_t kLeastBytes = 16 << 10;
constexpr std::size_t kMostBytes = 32 << 10;
/// A pause takes 10 to 50 ns, and a reader some microseconds for a piece.
constexpr int kPausesForASlot = 300;
/// Then the owner looks at what else there is to do.
constexpr int kPiecesInARow = 16;
/// How long a reader waits for a piece.
constexpr std::chrono::milliseconds kWaitForAPiece{2};

constexpr std::uint64_t word_of(std::uint32_t number, std::uint32_t pieces) noexcept {
  return std::uint64_t{number} << 32 | pieces;
}
/// Of the feed of this number.
constexpr std::uint32_t pieces_of(std::uint64_t word, std::uint32_t number) noexcept {
  return word >> 32 == number ? static_cast<std::uint32_t>(word) : 0;
}

}  // namespace

Feeds::Feeds(control::Express& express)
    : express_(express), own_(express.local_rank()),
      slot_bytes_(std::min(express.payloads_bytes() / kSlots / base::kPageBytes * base::kPageBytes, kMostBytes)) {}

bool Feeds::fits() const noexcept { return slot_bytes_ >= kLeastBytes && express_.ranks() == 2; }

Feeds::State& Feeds::state(int reader) const noexcept {
  return *reinterpret_cast<State*>(express_.extra(reader) + JointReads::kExtraBytes);
}

/// The same on both sides. No element is cut.
std::size_t Feeds::piece_bytes(std::size_t bytes) const noexcept {
  return std::clamp(base::round_up(bytes / (2 * kSlots), base::kPageBytes), kLeastBytes, slot_bytes_);
}

std::byte* Feeds::slot(int owner, std::uint32_t piece) const noexcept {
  return express_.payloads(owner) + piece % kSlots * slot_bytes_;
}

std::size_t Feeds::take(std::size_t bytes, const Visit& visit, const Await& await) {
  State& one = state(own_);
  const std::uint32_t number = one.number.load(std::memory_order_relaxed) + 1;
  one.number.store(number, std::memory_order_relaxed);
  one.taken.store(word_of(number, 0), std::memory_order_relaxed);
  one.asked.store(express_.call(), std::memory_order_release);
  const std::size_t most = piece_bytes(bytes);
  std::uint32_t piece = 0;
  std::uint32_t fed = 0;  // as last seen: each look takes the line out of the owner's cache
  for (std::size_t begin = 0; begin < bytes; begin += most) {
    if (piece == fed && (fed = await_piece(one, piece, await)) == piece) return begin;
    visit(begin, std::min(most, bytes - begin), slot(1 - own_, piece));
    one.taken.store(word_of(number, ++piece), std::memory_order_release);
  }
  return bytes;
}

/// How many pieces are fed: more than so many, or the owner does not go on.
std::uint32_t Feeds::await_piece(const State& state, std::uint32_t pieces, const Await& await) {
  const std::uint32_t number = state.number.load(std::memory_order_relaxed);
  std::uint32_t fed = 0;
  const auto is_fed = [&] {
    fed = pieces_of(state.fed.load(std::memory_order_acquire), number);
    return fed > pieces;
  };
  if (is_fed()) return fed;
  const base::Time until = base::now() + kWaitForAPiece;
  await([&] { return is_fed() || base::now() >= until; });
  return fed;
}

/// Whether there is a free slot, after the time that a reader takes for a piece. A reader that takes longer may have
/// been stopped: then the owner looks once in a while, and otherwise waits as in any call.
bool Feeds::await_slot(const State& state, Fed& fed) {
  for (int pauses = fed.waits_long ? 0 : kPausesForASlot; fed.pieces - fed.taken >= kSlots; --pauses) {
    fed.taken = pieces_of(state.taken.load(std::memory_order_acquire), fed.number);
    fed.waits_long = pauses == 0 && fed.pieces - fed.taken >= kSlots;
    if (pauses == 0) return !fed.waits_long;
    base::cpu_relax();
  }
  return true;
}

void Feeds::feed(const std::byte* input, std::size_t bytes, kernels::PeerCopy& copy) {
  State& one = state(1 - own_);
  if (one.asked.load(std::memory_order_acquire) != express_.call()) return;
  const std::uint32_t number = one.number.load(std::memory_order_relaxed);
  if (fed_.number != number) fed_ = {number, 0, 0, false};
  const std::size_t most = piece_bytes(bytes);
  const std::size_t first = fed_.pieces * most;
  for (std::size_t begin = first; begin < std::min(bytes, first + kPiecesInARow * most); begin += most) {
    if (!await_slot(one, fed_)) return;
    copy(slot(own_, fed_.pieces), input + begin, static_cast<std::int64_t>(std::min(most, bytes - begin)));
    one.fed.store(word_of(number, ++fed_.pieces), std::memory_order_release);
  }
}

}  // namespace kolo::engine
