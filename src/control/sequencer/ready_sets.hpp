// SPDX-License-Identifier: Apache-2.0
//
// The sets in which a request is ready. Requests enter the sets' queues (`ReadyQueue`) here. The calls of a set's
// sequence have a queue of their own; together they have one place in the set's queue.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "control/sequencer/set.hpp"

namespace kolo::control::sequencer {

class ReadySets {
 public:
  explicit ReadySets(const TensorTable& tensors) : tensors_(tensors) {}

  [[nodiscard]] Queued queued(const Set& set, core::TensorId id) const {
    return {false, id, false, tensors_[id].priority, set.appended};
  }
  [[nodiscard]] static Queued queued_batch(const Set& set, std::uint32_t number) {
    return {true, number, false, set.plan->priorities[number], set.appended};
  }
  [[nodiscard]] static Queued queued_calls(const Set& set) { return {false, 0, true, 0, set.appended}; }

  void enqueue(Set& set, const Queued& item) {
    set.queue.push(item);
    if (!std::exchange(set.waits, true)) waiting_.push_back(set.number);
  }

  /// Sets that may have something to append: all whose queue is not empty, and perhaps others.
  [[nodiscard]] const std::vector<core::SetId>& waiting() const noexcept { return waiting_; }
  /// Takes the waiting sets, in the order of their numbers. The caller returns those that still wait by `keep`. Valid
  /// until the next call.
  [[nodiscard]] const std::vector<core::SetId>& take() {
    taken_.clear();
    taken_.swap(waiting_);
    std::sort(taken_.begin(), taken_.end());
    return taken_;
  }
  void keep(Set& set) {
    set.waits = !set.queue.empty();
    if (set.waits) waiting_.push_back(set.number);
  }
  /// The set is removed.
  void forget(const Set& set) {
    if (set.waits) waiting_.erase(std::find(waiting_.begin(), waiting_.end(), set.number));
  }

 private:
  const TensorTable& tensors_;
  std::vector<core::SetId> waiting_;
  std::vector<core::SetId> taken_;  ///< kept between calls to reuse its memory
};

}  // namespace kolo::control::sequencer
