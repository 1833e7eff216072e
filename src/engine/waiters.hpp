// SPDX-License-Identifier: Apache-2.0
//
// What the driver and the threads that wait know of each other, beside their handles.
//
// The driver knows how many open operations somebody waits for or has asked about: a planned batch that lacks something
// is reported only while there are any (docs/architecture.md, "Negotiation", rule 7). Threads that wait for something
// else than one operation learn that something has changed.
//
// A driver notes both as often as it likes, and publishes them once, at the end of its pass.
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
  /// Somebody waits for the operation, or has asked about it. Whether it was not marked before. Counted first, and
  /// corrected: the count is never too low.
  bool mark(Operation& operation) noexcept {
    awaited_.fetch_add(1);
    if (operation.mark_awaited()) return true;
    awaited_.fetch_sub(1);
    return false;
  }
  [[nodiscard]] base::EventCount::Ticket ticket() const noexcept { return changes_.ticket(); }
  void sleep(base::EventCount::Ticket ticket, base::Time until) { changes_.sleep(ticket, until); }

  // -- the driver
  /// Whether any operation is awaited. Asked before the mailbox is looked at: whoever waits has submitted what he had
  /// to, so that no planned batch is reported as lacking what lies in the mailbox already.
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
