// SPDX-License-Identifier: Apache-2.0
//
// A lock that threads get in the order in which they ask for it (a ticket lock). A turn may end on another thread than
// it was taken on. Where nobody waits a turn costs two atomic steps; who waits sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.hpp"
#include "base/mutex.hpp"

namespace kolo::base {

class Turns {
 public:
  /// Waits for the turn.
  void take() {
    if (try_take()) return;
    const std::uint64_t ticket = next_.fetch_add(1, std::memory_order_seq_cst);
    const MutexLock lock(mutex_);
    while (serving_.load(std::memory_order_seq_cst) != ticket) ended_.wait(mutex_);
  }
  /// Whether nobody had it, and it is the caller's now; false may also mean that somebody had it a moment ago. Tickets
  /// are never fewer than turns that have ended: so nobody has it if the next ticket is that of the turn which was last
  /// seen to be due.
  [[nodiscard]] bool try_take() noexcept {
    std::uint64_t due = serving_.load(std::memory_order_acquire);
    return next_.compare_exchange_strong(due, due + 1, std::memory_order_seq_cst, std::memory_order_relaxed);
  }
  /// Ends the turn. It says so before it looks who waits, and those take their tickets before they look whether it is
  /// their turn: one of the two sees the other.
  void end() noexcept {
    const std::uint64_t due = serving_.load(std::memory_order_relaxed) + 1;
    serving_.exchange(due, std::memory_order_seq_cst);
    const std::uint64_t next = next_.load(std::memory_order_seq_cst);
    if (next == due) return;
    KOLO_CHECK(next > due) << "a turn ended that nobody had";
    const MutexLock lock(mutex_);  // who has looked in vain sleeps by now
    ended_.notify_all();
  }
  /// Whether nobody has it, at this moment.
  [[nodiscard]] bool is_free() const noexcept {
    const std::uint64_t due = serving_.load(std::memory_order_seq_cst);
    return next_.load(std::memory_order_seq_cst) == due;
  }
  /// How many threads wait for it, at this moment.
  [[nodiscard]] std::uint64_t waiting() const noexcept {
    const std::uint64_t due = serving_.load(std::memory_order_seq_cst);
    const std::uint64_t taken = next_.load(std::memory_order_seq_cst) - due;
    return taken > 0 ? taken - 1 : 0;
  }

 private:
  std::atomic<std::uint64_t> next_{0};     // ticket
  std::atomic<std::uint64_t> serving_{0};  // the ticket that is due; whoever has the turn writes it
  Mutex mutex_;                            // around sleeping
  ConditionVariable ended_;
};

}  // namespace kolo::base
