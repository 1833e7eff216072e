// SPDX-License-Identifier: Apache-2.0
//
// The requests of one set that are ready and not in the log: by priority, and among equals in the order in which they
// became ready. Plain data.
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
  std::uint64_t since = 0;  ///< how many batches the set had appended when it was queued
  [[nodiscard]] bool is_tensor() const noexcept { return !planned && !calls; }
};

class ReadyQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return items_.empty(); }
  /// The next one. The queue must not be empty.
  [[nodiscard]] const Queued& front() const { return items_.front(); }
  void pop_front() { items_.pop_front(); }
  /// Everything, in order; the queue is empty then.
  [[nodiscard]] std::deque<Queued> take_all() { return std::exchange(items_, {}); }

  /// Inserts behind items of the same priority. Without priorities that is one comparison, and the item goes to the
  /// end.
  void push(const Queued& item) {
    const auto precedes = [](const Queued& a, const Queued& b) { return a.priority > b.priority; };
    auto place = items_.end();
    if (!items_.empty() && precedes(item, items_.back()))
      place = std::upper_bound(items_.begin(), items_.end(), item, precedes);
    items_.insert(place, item);
  }

  /// Moves an item to the front that `patience` batches have overtaken. `appended`: how many batches the set has
  /// appended. The queue must not be empty.
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
