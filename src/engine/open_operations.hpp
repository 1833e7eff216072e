// SPDX-License-Identifier: Apache-2.0
//
// The open operations of this rank, in no order; when the next deadline or warning is due; how an operation ends; and
// what the driver and the waiting threads know of each other, beside their handles.
//
// The driver counts the open operations for which a thread waits or about which it has asked. An incomplete planned
// batch is reported only while there are any (docs/architecture.md, "Negotiation", rule 7). Threads that wait for
// anything but a single operation are woken by a change. A driver notes both during a pass, and publishes them once at
// its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "engine/deferred.hpp"
#include "engine/driver.hpp"
#include "engine/name_table.hpp"
#include "engine/operation.hpp"
#include "engine/records.hpp"
#include "engine/sets.hpp"
#include "engine/tally.hpp"
#include "recorder/recorder.hpp"

namespace kolo::engine {

/// Sleeping until something has changed that no mutex guards. Thread-safe. One that waits:
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
    { const base::MutexLock lock(mutex_); }  // a sleeper that has checked is asleep now
    changed_.notify_all();
  }

  /// Returns when `ring` has been called since the ticket was taken, or when the time has come.
  void sleep(Ticket ticket, base::Time until) {
    const base::MutexLock lock(mutex_);
    sleepers_.fetch_add(1);
    bool in_time = true;
    while (in_time && rings_.load() == ticket) {
      if (until == base::Time::max()) {
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
  base::Mutex mutex_;
  base::ConditionVariable changed_;
};

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
  [[nodiscard]] EventCount::Ticket ticket() const noexcept { return changes_.ticket(); }
  void sleep(EventCount::Ticket ticket, base::Time until) { changes_.sleep(ticket, until); }

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
  EventCount changes_;
  std::int64_t done_ = 0;
  bool seen_ = false;
  bool has_changed_ = false;
};

/// Only the driver uses it, except `waiters`.
class OpenOperations {
 public:
  struct Patience {
    base::Duration usual;       ///< of operations without a deadline of their own
    base::Duration warn_after;  ///< of warnings
  };

  /// This many operations are a burst.
  static constexpr std::size_t kBurst = 8;

  /// All that is referred to outlives it.
  OpenOperations(Patience its_patience, const Driver& driver, Sets& sets, Deferred& deferred, Tally& tally,
                 recorder::Recorder& recorder) noexcept
      : patience(its_patience), driver_(driver), sets_(sets), deferred_(deferred), tally_(tally), recorder_(recorder) {}

  const Patience patience;  ///< any thread
  Waiters waiters;          ///< for them

  [[nodiscard]] bool empty() const noexcept { return operations_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return operations_.size(); }
  /// The only one that has not been given to a device; null: there is none, or there are several.
  [[nodiscard]] const Operation* only_not_given() const noexcept {
    if (not_given_ != 1) return nullptr;
    const auto its = [](const Operation* operation) { return !operation->is_given(); };
    return *std::find_if(operations_.rbegin(), operations_.rend(), its);
  }
  [[nodiscard]] Operation& operator[](std::size_t index) const noexcept { return *operations_[index]; }
  [[nodiscard]] auto begin() const noexcept { return operations_.begin(); }
  [[nodiscard]] auto end() const noexcept { return operations_.end(); }

  /// Memory for one more: `add` after it needs none.
  void make_room() {
    if (operations_.size() == operations_.capacity())
      operations_.reserve(std::max<std::size_t>(16, 2 * operations_.capacity()));
  }
  /// Its deadline is counted from now. Its entry holds it, or its batch once it runs.
  void add(Operation& operation, base::Time now) {
    operation.open_index = operations_.size();
    operations_.push_back(&operation);
    ++not_given_;
    count_from(operation, now);
  }
  /// All its work is about to be given to a device: from now on the host only waits for its end.
  void note_given(const Operation& operation) noexcept {
    if (!operation.is_given()) --not_given_;
  }
  /// Its deadline is counted from now, once more.
  void restart(Operation& operation, base::Time now) {
    operation.waiting.overdue = operation.waiting.reminded = false;
    count_from(operation, now);
  }
  /// `submissions` were found together; at least one.
  void note_found(std::size_t submissions) noexcept { come_in_bursts_ = submissions >= kBurst; }
  /// One more submission may wait for the background thread's next nap to end: many are open that no device has been
  /// given, or many will come before anybody waits, as they did the last time.
  [[nodiscard]] bool is_burst() const noexcept { return come_in_bursts_ || not_given_ >= kBurst; }

  /// Its end. Its entry may hold it alone, and is free from here on.
  void complete(Operation& operation, const Status& status) KOLO_REQUIRES(kDriving) {
    waiters.note_change();
    if (deferred_.logs(LogLevel::trace)) {
      deferred_.log(LogLevel::trace, (status.ok() ? "done: " : "failed: ") + record_of(operation));
    }
    note_given(operation);
    Operation* const last = operations_.back();  // takes its place
    operations_[operation.open_index] = last;
    last->open_index = operation.open_index;
    operations_.pop_back();
    if (!status.ok() && !operation.is_own) {
      ++tally_.failures;
      record_failure(operation, status);
    }
    if (status.code() == ErrorCode::mismatch) ++tally_.mismatches;
    ++(driver_.in_background() ? tally_.driven_by_background : tally_.driven_by_waiters);
    Entry& entry = *operation.entry;
    const OperationPtr held = std::move(entry.operation);  // by the entry alone, perhaps
    // Before the handle is done: its owner may submit the name again at once.
    if (operation.is_join) {
      sets_.sequence_of(entry.set).end_join();
    } else if (entry.sequence == nullptr) {
      finish_entry(entry);
    } else if (operation.call != 0) {
      entry.sequence->note_over();
    }
    bool was_awaited = false;
    if (!status.ok() || !operation.complete_unattended(was_awaited)) {
      for (auto& callback : operation.complete(status, was_awaited)) deferred_.call(std::move(callback), status);
    }
    if (was_awaited) waiters.note_done();
  }

  /// When deadlines and warnings must be looked at; possibly too early.
  [[nodiscard]] base::Time next_due() const noexcept { return next_due_; }
  void due_at(base::Time time) noexcept { next_due_ = std::min(next_due_, time); }
  /// All operations are checked now, and each reports again when it is due.
  void forget_due() noexcept { next_due_ = base::Time::max(); }

 private:
  void record_failure(const Operation& operation, const Status& status) {
    recorder_.record(recorder::Kind::failed, operation.entry->set, operation.name_hash,
                     recorder::saturated(operation.call), 0, static_cast<std::uint8_t>(status.code()));
    recorder_.sentence(status.message());
  }
  void count_from(Operation& operation, base::Time now) {
    const base::Duration timeout = operation.timeout.value_or(patience.usual);
    operation.waiting.since = now;
    operation.waiting.deadline = base::after(now, timeout);
    due_at(std::min(operation.waiting.deadline, base::after(now, patience.warn_after)));
  }

  const Driver& driver_;
  Sets& sets_;
  Deferred& deferred_;
  Tally& tally_;
  recorder::Recorder& recorder_;
  std::vector<Operation*> operations_;
  std::size_t not_given_ = 0;  // of these, to a device; those of the CPU never are
  base::Time next_due_ = base::Time::max();
  bool come_in_bursts_ = false;
};

}  // namespace kolo::engine
