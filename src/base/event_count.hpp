// SPDX-License-Identifier: Apache-2.0
//
// Sleeping until something has changed that no mutex guards.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.hpp"

namespace kolo::base {

/// Thread-safe. One that waits:
///   const EventCount::Ticket ticket = changes.ticket();
///   if (!what_it_waits_for()) changes.sleep(ticket, until);
/// Whoever changes anything that others may wait for calls `ring` afterwards. A change between the two lines lets
/// `sleep` return at once. Nobody sleeps: `ring` costs one atomic step.
class EventCount {
 public:
  using Ticket = std::uint64_t;

  [[nodiscard]] Ticket ticket() const noexcept { return rings_.load(); }

  void ring() noexcept {
    rings_.fetch_add(1);  // sequentially consistent, as the sleeper's two steps: one of both sees the other
    if (sleepers_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }  // a sleeper that has looked sleeps by now
    changed_.notify_all();
  }

  /// Returns when `ring` has been called since the ticket was taken, or when the time has come.
  void sleep(Ticket ticket, Time until) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    const auto rung = [&] { return rings_.load() != ticket; };
    if (until == Time::max()) {
      changed_.wait(lock, rung);
    } else {
      changed_.wait_until(lock, until, rung);
    }
    sleepers_.fetch_sub(1);
  }

 private:
  std::atomic<Ticket> rings_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace kolo::base
