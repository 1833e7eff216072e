// SPDX-License-Identifier: Apache-2.0
//
// What this rank has in flight, in no order, and when the next of it must be looked at: its deadline, or a warning that
// it waits. One thread at a time (the engine's driver).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/clock.hpp"
#include "engine/operation.hpp"

namespace kolo::engine {

class OpenOperations {
 public:
  struct Patience {
    base::Duration usual;       ///< of operations without a deadline of their own
    base::Duration warn_after;  ///< of warnings
  };

  /// So many operations are a burst.
  static constexpr std::size_t kBurst = 8;

  explicit OpenOperations(Patience patience) noexcept : patience_(patience) {}

  [[nodiscard]] const Patience& patience() const noexcept { return patience_; }
  [[nodiscard]] bool empty() const noexcept { return operations_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return operations_.size(); }
  [[nodiscard]] Operation& operator[](std::size_t index) const noexcept { return *operations_[index]; }
  [[nodiscard]] auto begin() const noexcept { return operations_.begin(); }
  [[nodiscard]] auto end() const noexcept { return operations_.end(); }

  /// Its deadline is counted from now. Its entry holds it, or its batch once it runs.
  void add(Operation& operation, base::Time now) {
    operation.open_index = operations_.size();
    operations_.push_back(&operation);
    count_from(operation, now);
  }
  /// Its deadline is counted from now, once more.
  void restart(Operation& operation, base::Time now) {
    operation.overdue = operation.reminded = false;
    count_from(operation, now);
  }
  /// So many submissions were found together, at least one.
  void note_found(std::size_t submissions) noexcept { come_in_bursts_ = submissions >= kBurst; }
  /// One more submission may wait for the background thread's next nap to end: many are open, or many will come before
  /// anybody waits, as they did the last time.
  [[nodiscard]] bool is_burst() const noexcept { return come_in_bursts_ || size() >= kBurst; }

  /// The last one takes its place.
  void remove(const Operation& operation) noexcept {
    Operation* const last = operations_.back();
    operations_.pop_back();
    if (last == &operation) return;
    last->open_index = operation.open_index;
    operations_[operation.open_index] = last;
  }

  /// When deadlines and warnings must be looked at; possibly too early.
  [[nodiscard]] base::Time next_due() const noexcept { return next_due_; }
  void due_at(base::Time time) noexcept { next_due_ = std::min(next_due_, time); }
  /// All are looked at now, and each says anew when it is due.
  void forget_due() noexcept { next_due_ = base::Time::max(); }

 private:
  void count_from(Operation& operation, base::Time now) {
    const base::Duration timeout = operation.timeout.value_or(patience_.usual);
    operation.submitted = now;
    operation.deadline = base::after(now, timeout);
    due_at(std::min(operation.deadline, base::after(now, patience_.warn_after)));
  }

  const Patience patience_;
  std::vector<Operation*> operations_;
  base::Time next_due_ = base::Time::max();
  bool come_in_bursts_ = false;
};

}  // namespace kolo::engine
