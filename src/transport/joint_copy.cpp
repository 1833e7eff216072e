// SPDX-License-Identifier: Apache-2.0
#include "transport/joint_copy.hpp"

#include <algorithm>
#include <thread>

#include <unistd.h>

#include "base/round_up.hpp"

namespace kolo::transport {
namespace {

constexpr std::size_t kLeastPiece = 16 << 10;
constexpr std::size_t kMostPiece = 1 << 20;
/// The most bytes taken at a time.
constexpr std::size_t kMostShare = 8 << 20;
/// The least number of pieces, so that both ranks end at about the same time.
constexpr std::size_t kPieces = 16;

std::size_t piece_of(std::size_t bytes) noexcept {
  return base::round_up(std::clamp(bytes / kPieces, kLeastPiece, kMostPiece), base::kPageBytes);
}

/// By how much the first piece is shorter, so that the others begin at pages of the reader. The system copies page by
/// page, and memory of both ranks mostly has the same offset in its first page. 0 if an element could be cut.
std::size_t shift_of(std::uintptr_t to) noexcept {
  constexpr std::uintptr_t kLongestElement = 16;
  return to % kLongestElement == 0 ? to % base::kPageBytes : 0;
}

/// The word that both ranks change.
constexpr int kCountBits = 19;
constexpr std::uint64_t kMostPieces = (std::uint64_t{1} << kCountBits) - 1;
struct Word {
  std::uint64_t front = 0;  // the reader has taken the pieces before this,
  std::uint64_t back = 0;   // and the owner those from here on
  bool writes = false;
  bool closed = false;
  std::uint64_t number = 0;

  static Word of(std::uint64_t word) noexcept {
    Word made;
    made.front = word & kMostPieces;
    made.back = word >> kCountBits & kMostPieces;
    made.writes = (word >> (2 * kCountBits) & 1) != 0;
    made.closed = (word >> (2 * kCountBits + 1) & 1) != 0;
    made.number = word >> (64 - JointCopy::kNumberBits);
    return made;
  }
  [[nodiscard]] std::uint64_t packed() const noexcept {
    return front | back << kCountBits | std::uint64_t{writes} << (2 * kCountBits) |
           std::uint64_t{closed} << (2 * kCountBits + 1) | number << (64 - JointCopy::kNumberBits);
  }
  [[nodiscard]] bool has_pieces() const noexcept { return !closed && front < back; }
};
static_assert(2 * kCountBits + 2 + JointCopy::kNumberBits == 64);

/// Yields before the system is asked whether a peer still runs.
constexpr int kYields = 64;

}  // namespace

JointCopy::Number JointCopy::open(std::byte* to, std::size_t bytes) noexcept {
  const std::size_t piece = piece_of(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  const std::uint64_t pieces = (shift_of(address) + bytes + piece - 1) / piece;
  if (pieces > kMostPieces) return 0;
  Word word;
  word.back = pieces;
  word.number = Word::of(word_.load(std::memory_order_relaxed)).number % ((std::uint64_t{1} << kNumberBits) - 1) + 1;
  to_.store(address, std::memory_order_relaxed);
  bytes_.store(bytes, std::memory_order_relaxed);
  piece_.store(piece, std::memory_order_relaxed);
  word_.store(word.packed(), std::memory_order_release);
  return static_cast<Number>(word.number);
}

/// These `count` pieces, as one.
JointCopy::Piece JointCopy::pieces(std::uint64_t index, std::uint64_t count) const noexcept {
  const std::size_t piece = piece_.load(std::memory_order_relaxed);
  const std::size_t shift = shift_of(to_.load(std::memory_order_relaxed));
  const std::size_t begin = std::max(index * piece, shift) - shift;
  const std::size_t end = std::min((index + count) * piece - shift, bytes_.load(std::memory_order_relaxed));
  return {begin, end - begin};
}

/// How many of the remaining pieces are taken at once: many at first, because each system call costs time; one in the
/// end, so that both ranks end at about the same time.
std::uint64_t JointCopy::share(std::uint64_t left) const noexcept {
  const std::size_t piece = std::max<std::size_t>(piece_.load(std::memory_order_relaxed), 1);
  return std::max<std::uint64_t>(std::min<std::uint64_t>(left / 3, kMostShare / piece), 1);
}

JointCopy::Piece JointCopy::take() noexcept {
  std::uint64_t before = word_.load(std::memory_order_seq_cst);
  for (;;) {
    Word word = Word::of(before);
    if (!word.has_pieces()) return {};
    const std::uint64_t index = word.front;
    const std::uint64_t count = share(word.back - word.front);
    word.front += count;
    if (word_.compare_exchange_weak(before, word.packed(), std::memory_order_acq_rel, std::memory_order_acquire))
      return pieces(index, count);
  }
}

/// A reader that will sleep says so first, and then looks once more. The owner clears this word, and then looks whether
/// it must wake the reader.
bool JointCopy::is_idle() const noexcept { return !Word::of(word_.load(std::memory_order_seq_cst)).writes; }

/// If the owner has not stored which thread writes, it has not checked yet whether the word is closed.
bool JointCopy::is_stuck(const PeerMemory& memory, int owner) const noexcept {
  return !memory.may_be_writing(owner, writer_.load(std::memory_order_seq_cst)) && !is_idle();
}

JointCopy::Revoked JointCopy::revoke(PeerMemory& memory, int owner, base::Duration patience) noexcept {
  std::uint64_t before = word_.load(std::memory_order_seq_cst);
  for (Word word = Word::of(before); !word.closed; word = Word::of(before)) {
    word.closed = true;
    if (word_.compare_exchange_weak(before, word.packed(), std::memory_order_seq_cst)) break;
  }
  target_.bytes.store(0, std::memory_order_seq_cst);
  const base::Time begun = base::now();
  for (int yields = 1; !is_idle(); ++yields) {
    if (yields % kYields == 0) {
      if (is_stuck(memory, owner)) return Revoked::kept;
      if (base::now() - begun >= patience) return Revoked::unsafe;
    }
    std::this_thread::yield();
  }
  return Revoked::free;
}

JointCopy::Help JointCopy::help(PeerMemory& memory, int reader, Number number, const DataOf& data_of) noexcept {
  std::uint64_t before = word_.load(std::memory_order_acquire);
  Word taken;
  std::uint64_t count = 0;
  do {
    taken = Word::of(before);
    if (taken.number != number || !taken.has_pieces()) return Help::none;
    count = share(taken.back - taken.front);
    taken.back -= count;
    taken.writes = true;
  } while (!word_.compare_exchange_weak(before, taken.packed(), std::memory_order_seq_cst, std::memory_order_acquire));
  writer_.store(static_cast<std::int32_t>(::gettid()), std::memory_order_seq_cst);
  const Piece piece = pieces(taken.back, count);
  bool written = false;
  try {
    const std::byte* const data = data_of(piece);
    target_.address.store(to_.load(std::memory_order_relaxed) + piece.begin, std::memory_order_relaxed);
    target_.bytes.store(piece.bytes, std::memory_order_seq_cst);
    if (Word::of(word_.load(std::memory_order_seq_cst)).closed) {
      target_.bytes.store(0, std::memory_order_seq_cst);
    } else if (data != nullptr) {
      written = memory.write(reader, target_, data, piece.bytes).ok();
    }
  } catch (...) {  // no memory for an error's text: the reader reads this piece
  }
  before = word_.load(std::memory_order_relaxed);
  Word after;
  do {
    after = Word::of(before);
    after.writes = false;
    if (!written) after.back += count;
  } while (!word_.compare_exchange_weak(before, after.packed(), std::memory_order_seq_cst, std::memory_order_relaxed));
  if (after.closed) return Help::none;
  return written ? Help::wrote : Help::failed;
}

}  // namespace kolo::transport
