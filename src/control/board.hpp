// SPDX-License-Identifier: Apache-2.0
//
// The board: a node's shared table of who is ready for what, and the node's copy of the log. A layout over memory that
// somebody else maps (`NodeLink::memory`, zeroed); no code here waits, allocates or knows about processes.
//
// One column a local rank, written by that rank alone:
//   counts     one word (`CountWord`) an id: its submissions, published by one release store
//   doorbell   how many things the rank has published in all; bumped after each, so that the leader looks at one line
//              of a rank that did nothing
//   messages   a byte ring (one writer: the rank, one reader: the leader) for what is more than a count
//   log cursor how far the rank has read the log
//   asleep     what may wake this rank while nobody drives its engine; 0 while somebody does
// and one log a node, a byte ring with one writer (the leader) and all local ranks as readers, each at its own cursor:
// an entry is overwritten only when the slowest has passed it.
//
// Going to sleep and publishing cross over: the sleeper stores `asleep`, then looks at what would wake it; the
// publisher stores what it has, then looks at `asleep`. All four accesses are sequentially consistent; with acquire and
// release alone the two miss each other. The publisher's store that counts here is the doorbell's and the log length's.
//
// Fences are not used: thread sanitizers do not see them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "control/byte_ring.hpp"
#include "control/codec.hpp"
#include "control/messages.hpp"

namespace kolo::control {

struct BoardShape {
  int ranks = 1;                               ///< of this node
  std::uint32_t ids = 8192;                    ///< capacity of the count columns, reserved ids included
  std::size_t message_ring_bytes = 256 << 10;  ///< a multiple of 64
  std::size_t log_ring_bytes = 1 << 20;        ///< a multiple of 64
  /// Bytes of shared memory that such a board needs; a multiple of 4096.
  [[nodiscard]] std::size_t bytes() const noexcept;
};

/// Under these settings, for a node of so many ranks.
[[nodiscard]] BoardShape board_shape(const base::Settings& settings, int ranks);

/// One local rank's access to the board, and the only one that rank has: it remembers messages that are half written or
/// half read. Calls come from the driver of that rank's engine, except `asleep(rank)` which any thread may ask.
///
/// Rings may be shorter than a message. What is longer than a quarter of its ring goes through in parts: `post` and
/// `append_log` write what fits, return false, and go on where they were when called again with the same message, which
/// must happen before another one is offered. (A shorter message is written whole or not at all.) The reader's part of
/// it is to read: parts ring the doorbell and show as log entries, and `receive` and `next_log_entry` take them in
/// although they return false. Who got false looks again when the reader has had time; nothing here wakes it.
class Board {
 public:
  /// `memory` is zeroed, 64-byte aligned, `shape.bytes()` long, and outlives the board.
  Board(std::byte* memory, const BoardShape& shape, int local_rank);

  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] int ranks() const noexcept { return shape_.ranks; }

  // -- as a rank
  /// Publishes a count: the whole of a known tensor's submission. Rings the doorbell.
  void publish_count(core::TensorId id, CountWord word) noexcept {
    write_count(id, word);
    ring(1);
  }
  /// The same in two steps, for many counts under one ring of the doorbell.
  void write_count(core::TensorId id, CountWord word) noexcept;
  void ring(std::uint64_t publications) noexcept;
  /// The same without the doorbell, for what the leader may learn when it next looks: it wakes the leader only where
  /// that one asked for it (`Sleep::hears_quiet`).
  void publish_quietly(core::TensorId id, CountWord word) noexcept;
  /// Publishes a message and rings the doorbell; false when the ring has no space for all of it (try again with the
  /// same message after the leader has read).
  [[nodiscard]] bool post(ByteView message) noexcept;
  /// The next log entry that this rank has not read, or false. The cursor moves; the entry is copied out.
  [[nodiscard]] bool next_log_entry(Bytes& entry);
  /// Whether the leader has not taken all messages that this rank has posted.
  [[nodiscard]] bool has_unread_messages() const noexcept;
  /// Whether `next_log_entry` has something to read, be it only parts.
  [[nodiscard]] bool has_log_entry() const noexcept;

  // -- as the leader (local rank 0), who is a rank as well
  [[nodiscard]] std::uint64_t doorbell(int local_rank) const noexcept;
  [[nodiscard]] CountWord count(int local_rank, core::TensorId id) const noexcept;
  /// That rank's whole column of packed words, `shape.ids` of them: for looking along it.
  [[nodiscard]] const std::atomic<std::uint64_t>* counts(int local_rank) const noexcept;
  /// The next message of that rank, or false.
  [[nodiscard]] bool receive(int local_rank, Bytes& message);
  /// Appends to the node's log; false when a laggard has not yet read what would be overwritten (wake it, try again
  /// with the same entry). The leader reads the log like any rank, and may be the laggard itself.
  [[nodiscard]] bool append_log(ByteView entry) noexcept;
  /// The local rank whose cursor is furthest behind.
  [[nodiscard]] int laggard() const noexcept;
  /// This rank's process is gone and reads nothing more: the log waits for it no longer.
  void forget_reader(int local_rank) noexcept { gone_[static_cast<std::size_t>(local_rank)] = true; }

  // -- sleeping
  /// Why a sleeper may be woken, besides for messages and log entries.
  struct Sleep {
    bool has_batches = false;  ///< it has open batches: wake it when the data plane has moved
    bool hears_quiet = false;  ///< the leader waits for what is published quietly
    bool hears_counts = true;  ///< the leader waits for submissions: no batch can be ready without its own
  };
  /// Announces that nobody drives this rank's engine (sequentially consistent). Look once more afterwards at
  /// `has_log_entry`, and, as the leader, at the doorbells and at what is published quietly.
  void announce_sleep(Sleep sleep) noexcept;
  void announce_sleep() noexcept { announce_sleep(Sleep{}); }
  void announce_awake() noexcept;
  [[nodiscard]] bool asleep(int local_rank) const noexcept;
  [[nodiscard]] bool asleep_with_batches(int local_rank) const noexcept;
  [[nodiscard]] bool asleep_hearing_quiet(int local_rank) const noexcept;
  [[nodiscard]] bool asleep_hearing_counts(int local_rank) const noexcept;

 private:
  enum : std::uint64_t { kAsleep = 1, kHasBatches = 2, kHearsQuiet = 4, kHearsCounts = 8 };

  struct Column;
  struct Log;
  [[nodiscard]] Column& column(int local_rank) const noexcept;
  [[nodiscard]] std::atomic<std::uint64_t>& count_word(int local_rank, core::TensorId id) const noexcept;
  [[nodiscard]] ByteRing message_ring(int local_rank) const noexcept;
  [[nodiscard]] Log& log() const noexcept;
  [[nodiscard]] ByteRing log_ring() const noexcept;
  [[nodiscard]] std::uint64_t sleep_of(int local_rank) const noexcept;
  [[nodiscard]] std::uint64_t slowest_cursor() const noexcept;

  std::byte* memory_;
  BoardShape shape_;
  int local_rank_;
  PartWriter posting_;
  PartReader reading_log_;
  // The leader's.
  PartWriter appending_;
  std::vector<PartReader> receiving_;  // by local rank
  std::vector<bool> gone_;             // by local rank
  std::uint64_t log_reusable_ = 0;     // all cursors have passed this
};

/// Messages of a rank to its leader, in order. Those that the board's ring has no space for wait here. One thread at a
/// time.
class ToLeader {
 public:
  [[nodiscard]] bool empty() const noexcept { return messages_.empty(); }
  /// Whole or, where there is no memory, not at all.
  void add(const UpMessage& message) {
    Bytes bytes;
    encode(message, bytes);
    messages_.push_back(std::move(bytes));
  }
  /// Posts what the ring has space for; how many messages that was.
  std::size_t post(Board& board) {
    std::size_t posted = 0;
    while (!messages_.empty() && board.post(view_of(messages_.front()))) {
      messages_.pop_front();
      ++posted;
    }
    return posted;
  }

 private:
  std::deque<Bytes> messages_;
};

}  // namespace kolo::control
