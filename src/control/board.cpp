// SPDX-License-Identifier: Apache-2.0
#include "control/board.hpp"

#include <algorithm>
#include <cstddef>

#include "base/check.hpp"
#include "base/machine.hpp"

namespace kolo::control {

namespace {

constexpr std::size_t kLine = 64;

using Counter = std::atomic<std::uint64_t>;
// The word is shared between processes, so it must be lock-free: a lock would lie in private memory.
static_assert(Counter::is_always_lock_free && sizeof(Counter) == 8);
static_assert(alignof(Counter) == 8);

constexpr std::size_t kColumnHead = 4 * kLine;
std::size_t count_bytes(const BoardShape& shape) noexcept { return base::round_up(shape.ids * sizeof(Counter), kLine); }
std::size_t column_bytes(const BoardShape& shape) noexcept {
  return kColumnHead + count_bytes(shape) + shape.message_ring_bytes;
}

}  // namespace

/// A rank's words, grouped by writer: a cache line that two sides write would travel between their cores.
struct Board::Column {
  // Written by the rank, looked at by the leader.
  alignas(kLine) Counter doorbell;
  Counter messages_written;  // position in the message ring
  // Written by the leader.
  alignas(kLine) Counter messages_read;
  // Written by the rank, looked at by the leader only when the log seems full.
  alignas(kLine) Counter log_cursor;
  // Written by the rank, read by the rank that publishes.
  alignas(kLine) Counter asleep;
};

struct Board::Log {
  alignas(kLine) Counter written;  // position in the log ring
};

// In memory: the log's head; the columns, each with its head, counts and message ring; and the log's ring.
std::size_t BoardShape::bytes() const noexcept {
  return base::round_up(kLine + static_cast<std::size_t>(ranks) * column_bytes(*this) + log_ring_bytes,
                        base::kPageBytes);
}

BoardShape board_shape(const base::Settings& settings, int ranks) {
  const auto ring = [](std::int64_t bytes) { return base::round_up(static_cast<std::size_t>(bytes), kLine); };
  BoardShape shape;
  shape.ranks = ranks;
  shape.ids = static_cast<std::uint32_t>(settings.cache_capacity);
  shape.message_ring_bytes = ring(settings.message_ring_bytes);
  shape.log_ring_bytes = ring(settings.log_ring_bytes);
  return shape;
}

Board::Board(std::byte* memory, const BoardShape& shape, int local_rank)
    : memory_(memory), shape_(shape), local_rank_(local_rank),
      receiving_(local_rank == 0 ? static_cast<std::size_t>(shape.ranks) : 0),
      gone_(local_rank == 0 ? static_cast<std::size_t>(shape.ranks) : 0, false) {
  static_assert(sizeof(Column) == kColumnHead && alignof(Column) == kLine && sizeof(Log) == kLine);
  static_assert(offsetof(Column, messages_read) == kLine && offsetof(Column, asleep) == 3 * kLine);
  KOLO_CHECK(reinterpret_cast<std::uintptr_t>(memory) % kLine == 0);
  KOLO_CHECK(local_rank >= 0 && local_rank < shape.ranks) << "local rank " << local_rank << " of " << shape.ranks;
  KOLO_CHECK(shape.message_ring_bytes % kLine == 0 && shape.message_ring_bytes >= ByteRing::kSmallest);
  KOLO_CHECK(shape.log_ring_bytes % kLine == 0 && shape.log_ring_bytes >= ByteRing::kSmallest);
}

Board::Column& Board::column(int local_rank) const noexcept {
  const std::size_t offset = sizeof(Log) + static_cast<std::size_t>(local_rank) * column_bytes(shape_);
  return *reinterpret_cast<Column*>(memory_ + offset);
}

std::atomic<std::uint64_t>& Board::count_word(int local_rank, core::TensorId id) const noexcept {
  KOLO_CHECK(id < shape_.ids) << "id " << id << " on a board of " << shape_.ids;
  return reinterpret_cast<Counter*>(reinterpret_cast<std::byte*>(&column(local_rank)) + kColumnHead)[id];
}

ByteRing Board::message_ring(int local_rank) const noexcept {
  return {reinterpret_cast<std::byte*>(&column(local_rank)) + kColumnHead + count_bytes(shape_),
          shape_.message_ring_bytes};
}

Board::Log& Board::log() const noexcept { return *reinterpret_cast<Log*>(memory_); }

ByteRing Board::log_ring() const noexcept {
  const std::size_t columns = static_cast<std::size_t>(shape_.ranks) * column_bytes(shape_);
  return {memory_ + sizeof(Log) + columns, shape_.log_ring_bytes};
}

// ---------------------------------------------------------------- as a rank

/// The publisher's store of rule "write, then look for sleepers". It also publishes what was written before it.
void Board::ring(std::uint64_t publications) noexcept {
  Counter& bell = column(local_rank_).doorbell;
  bell.store(bell.load(std::memory_order_relaxed) + publications, std::memory_order_seq_cst);
}

void Board::write_count(core::TensorId id, CountWord word) noexcept {
  count_word(local_rank_, id).store(word.pack(), std::memory_order_release);
}

void Board::publish_quietly(core::TensorId id, CountWord word) noexcept {
  count_word(local_rank_, id).store(word.pack(), std::memory_order_seq_cst);
}

bool Board::post(ByteView message) noexcept {
  Column& own = column(local_rank_);
  const std::uint64_t before = own.messages_written.load(std::memory_order_relaxed);
  std::uint64_t position = before;
  const bool whole =
      posting_.write(message_ring(local_rank_), position, own.messages_read.load(std::memory_order_acquire), message);
  if (position != before) {
    own.messages_written.store(position, std::memory_order_release);
    ring(1);
  }
  return whole;
}

bool Board::next_log_entry(Bytes& entry) {
  Counter& cursor = column(local_rank_).log_cursor;
  const std::uint64_t before = cursor.load(std::memory_order_relaxed);
  const std::uint64_t written = log().written.load(std::memory_order_acquire);
  if (before == written) return false;
  std::uint64_t position = before;
  const bool whole = reading_log_.read(log_ring(), position, written, entry);
  cursor.store(position, std::memory_order_release);
  return whole;
}

bool Board::has_unread_messages() const noexcept {
  const Column& own = column(local_rank_);
  return own.messages_read.load(std::memory_order_acquire) != own.messages_written.load(std::memory_order_relaxed);
}

bool Board::has_log_entry() const noexcept {
  return log().written.load(std::memory_order_seq_cst) !=
         column(local_rank_).log_cursor.load(std::memory_order_relaxed);
}

// ---------------------------------------------------------------- as the leader

std::uint64_t Board::doorbell(int local_rank) const noexcept {
  return column(local_rank).doorbell.load(std::memory_order_seq_cst);
}

CountWord Board::count(int local_rank, core::TensorId id) const noexcept {
  return CountWord::unpack(count_word(local_rank, id).load(std::memory_order_seq_cst));
}

const std::atomic<std::uint64_t>* Board::counts(int local_rank) const noexcept { return &count_word(local_rank, 0); }

bool Board::receive(int local_rank, Bytes& message) {
  KOLO_CHECK(local_rank_ == 0) << "only the leader receives";
  Column& sender = column(local_rank);
  const std::uint64_t before = sender.messages_read.load(std::memory_order_relaxed);
  const std::uint64_t written = sender.messages_written.load(std::memory_order_acquire);
  if (before == written) return false;
  std::uint64_t position = before;
  const bool whole =
      receiving_[static_cast<std::size_t>(local_rank)].read(message_ring(local_rank), position, written, message);
  sender.messages_read.store(position, std::memory_order_release);
  return whole;
}

bool Board::append_log(ByteView entry) noexcept {
  KOLO_CHECK(local_rank_ == 0) << "only the leader appends";
  Counter& length = log().written;
  const std::uint64_t before = length.load(std::memory_order_relaxed);
  std::uint64_t position = before;
  const ByteRing ring = log_ring();
  bool whole = appending_.write(ring, position, log_reusable_, entry);
  if (!whole) {  // uses the cursors as last read: reading them costs a cache line from every rank
    log_reusable_ = slowest_cursor();
    whole = appending_.write(ring, position, log_reusable_, entry);
  }
  if (position != before) length.store(position, std::memory_order_seq_cst);
  return whole;
}

/// Do not read the laggard's cursor again: meanwhile it may have passed the others.
std::uint64_t Board::slowest_cursor() const noexcept {
  std::uint64_t least = ~std::uint64_t{0};
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    if (gone_[static_cast<std::size_t>(rank)]) continue;
    least = std::min(least, column(rank).log_cursor.load(std::memory_order_acquire));
  }
  return least;
}

int Board::laggard() const noexcept {
  int slowest = 0;
  std::uint64_t least = ~std::uint64_t{0};
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    const std::uint64_t cursor = column(rank).log_cursor.load(std::memory_order_acquire);
    if (!gone_[static_cast<std::size_t>(rank)] && cursor < least) {
      least = cursor;
      slowest = rank;
    }
  }
  return slowest;
}

// ---------------------------------------------------------------- sleeping

void Board::mark_asleep(Sleep sleep) noexcept {
  std::uint64_t state = kAsleep;
  if (sleep.has_batches) state |= kHasBatches;
  if (sleep.hears_quiet) state |= kHearsQuiet;
  if (sleep.hears_counts) state |= kHearsCounts;
  column(local_rank_).asleep.store(state, std::memory_order_seq_cst);
}
void Board::mark_awake() noexcept { column(local_rank_).asleep.store(0, std::memory_order_release); }

std::uint64_t Board::sleep_of(int local_rank) const noexcept {
  return column(local_rank).asleep.load(std::memory_order_seq_cst);
}
bool Board::asleep(int local_rank) const noexcept { return sleep_of(local_rank) != 0; }
bool Board::asleep_with_batches(int local_rank) const noexcept { return (sleep_of(local_rank) & kHasBatches) != 0; }
bool Board::asleep_hearing_quiet(int local_rank) const noexcept { return (sleep_of(local_rank) & kHearsQuiet) != 0; }
bool Board::asleep_hearing_counts(int local_rank) const noexcept { return (sleep_of(local_rank) & kHearsCounts) != 0; }

}  // namespace kolo::control
