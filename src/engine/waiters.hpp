// SPDX-License-Identifier: Apache-2.0
//
// What the driver and the waiting threads know of each other, beside their handles.
//
// The driver counts the open operations for which a thread waits or about which it has asked. An incomplete planned
// batch is reported only while there are any (docs/architecture.md, "Negotiation", rule 7). Threads that wait for
// anything but a single operation are woken by a change.
//
// A driver notes both during a pass, and publishes them once at its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/clock.hpp"
#include "base/event_count.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

class Waiters {
 public:
  // -- any thread
  /// A thread waits for the operation, or has asked about it. Returns whether it was not marked before. The operation
  /// is counted first, and the count corrected afterwards: it is never too low.
  bool mark(Operation& operation) noexcept {
    awaited_.fetch_add(1);
    if (operation.mark_awaited()) return true;
    awaited_.fetch_sub(1);
    return false;
  }
  [[nodiscard]] base::EventCount::Ticket ticket() const noexcept { return changes_.ticket(); }
  void sleep(base::EventCount::Ticket ticket, base::Time until) { changes_.sleep(ticket, until); }

  // -- the driver
  /// Whether any operation is awaited. Call it before the mailbox is read: a thread waits after its submissions, so no
  /// planned batch is reported as lacking a submission that is already in the mailbox.
  bool look() noexcept { return seen_ = awaited_.load() > 0; }
  /// Whether operations are awaited, and the driver's last look saw none.
  [[nodiscard]] bool has_news() const noexcept { return awaited_.load() > 0 && !seen_; }
  /// One that was marked is done.
  void note_done() noexcept { ++done_; }
  /// Something has changed that others may wait for.
  void note_change() noexcept { has_changed_ = true; }
  void publish() noexcept {
    if (done_ > 0) awaited_.fetch_sub(std::exchange(done_, 0));
    if (std::exchange(has_changed_, false)) changes_.ring();
  }

 private:
  std::atomic<std::int64_t> awaited_{0};
  base::EventCount changes_;
  std::int64_t done_ = 0;
  bool seen_ = false;
  bool has_changed_ = false;
};

}  // namespace kolo::engine
