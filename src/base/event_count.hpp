// SPDX-License-Identifier: Apache-2.0
//
// Sleeping until something has changed that no mutex guards.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace kolo::base {

/// Thread-safe. One that waits:
///   const EventCount::Ticket ticket = changes.ticket();
///   if (!what_it_waits_for()) changes.sleep(ticket, until);
/// A thread that changes something for which others may wait calls `ring` afterwards. After a change between the two
/// lines `sleep` returns at once. If no thread sleeps, `ring` costs one atomic operation.
class EventCount {
 public:
  using Ticket = std::uint64_t;

  [[nodiscard]] Ticket ticket() const noexcept { return rings_.load(); }

  void ring() noexcept {
    rings_.fetch_add(1);  // sequentially consistent, as the sleeper's two operations: at least one side sees the other
    if (sleepers_.load() == 0) return;
    { const MutexLock lock(mutex_); }  // a sleeper that has checked is asleep now
    changed_.notify_all();
  }

  /// Returns when `ring` has been called since the ticket was taken, or when the time has come.
  void sleep(Ticket ticket, Time until) {
    const MutexLock lock(mutex_);
    sleepers_.fetch_add(1);
    bool in_time = true;
    while (in_time && rings_.load() == ticket) {
      if (until == Time::max()) {
        changed_.wait(mutex_);
      } else {
        in_time = changed_.wait_until(mutex_, until);
      }
    }
    sleepers_.fetch_sub(1);
  }

 private:
  std::atomic<Ticket> rings_{0};
  std::atomic<int> sleepers_{0};
  Mutex mutex_;
  ConditionVariable changed_;
};

}  // namespace kolo::base
