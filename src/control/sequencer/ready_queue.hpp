// SPDX-License-Identifier: Apache-2.0
//
// What of one set is ready and not in the log: by priority, and among equals in the order in which it came. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <utility>

namespace kolo::control::sequencer {

struct Queued {
  bool planned = false;  ///< a batch of the set's plan, by number; else a tensor, by id
  std::uint32_t which = 0;
  bool calls = false;  ///< instead: calls of the set's sequence
  std::int32_t priority = 0;
  std::uint64_t since = 0;  ///< batches of the set before it was queued
  [[nodiscard]] bool is_tensor() const noexcept { return !planned && !calls; }
};

class ReadyQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return items_.empty(); }
  /// The next. Not of an empty queue.
  [[nodiscard]] const Queued& front() const { return items_.front(); }
  void pop_front() { items_.pop_front(); }
  /// Everything, in order; the queue is empty then.
  [[nodiscard]] std::deque<Queued> take_all() { return std::exchange(items_, {}); }

  /// Behind what is as urgent. Without priorities that is a comparison with the last one, and things come to the end.
  void push(const Queued& item) {
    const auto precedes = [](const Queued& a, const Queued& b) { return a.priority > b.priority; };
    auto place = items_.end();
    if (!items_.empty() && precedes(item, items_.back()))
      place = std::upper_bound(items_.begin(), items_.end(), item, precedes);
    items_.insert(place, item);
  }

  /// Brings to the front what has seen `patience` batches go ahead of it, for the next batch. `appended`: batches of
  /// the set until now. Not of an empty queue.
  void be_fair(std::uint64_t appended, std::uint64_t patience) {
    if (items_.front().priority == items_.back().priority) return;
    const auto oldest = std::min_element(items_.begin(), items_.end(),
                                         [](const Queued& a, const Queued& b) { return a.since < b.since; });
    if (appended - oldest->since < patience) return;
    std::rotate(items_.begin(), oldest, std::next(oldest));
  }

 private:
  std::deque<Queued> items_;
};

}  // namespace kolo::control::sequencer
