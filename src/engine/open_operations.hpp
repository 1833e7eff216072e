// SPDX-License-Identifier: Apache-2.0
//
// The open operations of this rank, in no order; when the next deadline or warning is due; and how an operation ends.
// Only the driver uses it, except `waiters`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "engine/deferred.hpp"
#include "engine/driver.hpp"
#include "engine/name_table.hpp"
#include "engine/operation.hpp"
#include "engine/records.hpp"
#include "engine/sets.hpp"
#include "engine/tally.hpp"
#include "engine/waiters.hpp"
#include "recorder/recorder.hpp"

namespace kolo::engine {

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
    count_from(operation, now);
  }
  /// Its deadline is counted from now, once more.
  void restart(Operation& operation, base::Time now) {
    operation.waiting.overdue = operation.waiting.reminded = false;
    count_from(operation, now);
  }
  /// `submissions` were found together; at least one.
  void note_found(std::size_t submissions) noexcept { come_in_bursts_ = submissions >= kBurst; }
  /// One more submission may wait for the background thread's next nap to end: many are open, or many will come before
  /// anybody waits, as they did the last time.
  [[nodiscard]] bool is_burst() const noexcept { return come_in_bursts_ || size() >= kBurst; }

  /// Its end. Its entry may hold it alone, and is free from here on.
  void complete(Operation& operation, const Status& status) KOLO_REQUIRES(kDriving) {
    waiters.note_change();
    if (deferred_.logs(LogLevel::trace)) {
      deferred_.log(LogLevel::trace, (status.ok() ? "done: " : "failed: ") + record_of(operation));
    }
    Operation* const last = operations_.back();  // takes its place
    operations_[operation.open_index] = last;
    last->open_index = operation.open_index;
    operations_.pop_back();
    if (!status.ok()) {
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
  base::Time next_due_ = base::Time::max();
  bool come_in_bursts_ = false;
};

}  // namespace kolo::engine
