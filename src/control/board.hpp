// SPDX-License-Identifier: Apache-2.0
//
// The board: a node's shared table of who is ready for what, and the node's copy of the log. A layout over memory that
// is mapped elsewhere (`NodeLink::memory`, zeroed). Nothing here waits, allocates or knows about processes.
//
// One column a local rank, written by that rank alone:
//   counts     one word (`CountWord`) for each id: its submissions, published by one release store
//   doorbell   how often the rank has published; it grows after each, so that the leader looks at only one cache line
//              of a rank that published nothing
//   messages   a byte ring for longer messages; its writer is the rank, its reader the leader
//   log cursor how far the rank has read the log
//   asleep     which events wake this rank while no thread drives its engine; 0 while one does
// and one log a node, a byte ring with one writer (the leader) and all local ranks as readers, each at its own cursor:
// an entry is overwritten only when the slowest has passed it.
//
// Sleeping and publishing. A sleeper stores `asleep`, then looks for events once more; a publisher stores the event,
// then looks at `asleep`. All four accesses are sequentially consistent; with acquire and release only, both could miss
// each other. The publisher's store is that of the doorbell or of the log length.
//
// There are no fences, because thread sanitizers do not see them.
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

/// The board's shape under these settings, for a node of `ranks` ranks.
[[nodiscard]] BoardShape board_shape(const base::Settings& settings, int ranks);

/// One local rank's access to the board. A rank has exactly one, because it remembers messages that are partly written
/// or read. Only the driver of that rank's engine calls it, except `asleep(rank)`, which any thread may call.
///
/// Rings may be shorter than a message. A message longer than a quarter of its ring is written in parts: `post` and
/// `append_log` write what fits, return false, and continue when they are called again with the same message. No other
/// message may come before that. (A shorter message is written whole or not at all.) Parts ring the doorbell and count
/// as log entries; `receive` and `next_log_entry` read them and return false until the message is whole. A writer that
/// got false tries again later; nothing here wakes it.
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
  /// The same without the doorbell, if the leader may learn of it when it next looks. It wakes the leader only if the
  /// leader asked for that (`Sleep::hears_quiet`).
  void publish_quietly(core::TensorId id, CountWord word) noexcept;
  /// Publishes a message and rings the doorbell; false when the ring has no space for all of it (try again with the
  /// same message after the leader has read).
  [[nodiscard]] bool post(ByteView message) noexcept;
  /// The next log entry that this rank has not read, or false. The cursor moves; the entry is copied out.
  [[nodiscard]] bool next_log_entry(Bytes& entry);
  /// Whether the leader has not taken all messages that this rank has posted.
  [[nodiscard]] bool has_unread_messages() const noexcept;
  /// Whether `next_log_entry` has something to read, perhaps only a part of an entry.
  [[nodiscard]] bool has_log_entry() const noexcept;

  // -- as the leader (local rank 0), which is a rank as well
  [[nodiscard]] std::uint64_t doorbell(int local_rank) const noexcept;
  [[nodiscard]] CountWord count(int local_rank, core::TensorId id) const noexcept;
  /// That rank's column of packed words, `shape.ids` of them.
  [[nodiscard]] const std::atomic<std::uint64_t>* counts(int local_rank) const noexcept;
  /// The next message of that rank, or false.
  [[nodiscard]] bool receive(int local_rank, Bytes& message);
  /// Appends to the node's log; false if a rank has not read yet what would be overwritten (wake the `laggard`, and try
  /// again with the same entry). The leader reads the log like any rank, and may be the laggard itself.
  [[nodiscard]] bool append_log(ByteView entry) noexcept;
  /// The local rank whose cursor is furthest behind.
  [[nodiscard]] int laggard() const noexcept;
  /// This rank's process is gone and reads nothing more: the log waits for it no longer.
  void forget_reader(int local_rank) noexcept { gone_[static_cast<std::size_t>(local_rank)] = true; }

  // -- sleeping
  /// Which events wake a sleeper, besides messages and log entries.
  struct Sleep {
    bool has_batches = false;  ///< it has open batches: wake it when the data plane has progressed
    bool hears_quiet = false;  ///< the leader waits for what `publish_quietly` publishes
    bool hears_counts = true;  ///< the leader waits for submissions; false: no batch can become ready without its own
                               ///< submission
  };
  /// Says that no thread drives this rank's engine (sequentially consistent). Afterwards the caller checks
  /// `has_log_entry` once more, and, as the leader, the doorbells and the counts that were published quietly.
  void mark_asleep(Sleep sleep) noexcept;
  void mark_asleep() noexcept { mark_asleep(Sleep{}); }
  void mark_awake() noexcept;
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
  std::uint64_t log_reusable_ = 0;     // all cursors are beyond this position
};

/// Messages of a rank to its leader, in order. Those that the board's ring has no space for wait here. One thread at a
/// time.
class ToLeader {
 public:
  [[nodiscard]] bool empty() const noexcept { return messages_.empty(); }
  /// Adds the whole message, or throws without a change if there is no memory.
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
