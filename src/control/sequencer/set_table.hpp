// SPDX-License-Identifier: Apache-2.0
//
// The existing sets, and those in which a request is ready. Plain data, no threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/sentences.hpp"
#include "control/sequencer/set.hpp"

namespace kolo::control::sequencer {

/// The existing sets, by number, and the texts by which messages name sets and requests. The world is the first set and
/// always exists. A number that is not in the table is that of a removed set.
class SetTable {
 public:
  SetTable(TensorTable& tensors, std::int64_t fusion_threshold) : tensors_(tensors), threshold_(fusion_threshold) {}

  /// Makes a set under the next number. `members` ascend, and are also the set's order until it is set.
  Set& add(core::TensorId base, std::vector<std::int32_t> members) {
    const core::SetId number = next_++;
    Set& set = sets_.try_emplace(number, number, tensors_, threshold_).first->second;
    set.base = base;
    set.order = set.members = std::move(members);
    return set;
  }
  void erase(core::SetId set) { sets_.erase(set); }
  [[nodiscard]] core::SetId next_number() const noexcept { return next_; }

  [[nodiscard]] Set& world() { return sets_.begin()->second; }  // the first of them
  /// Null: it has been removed.
  [[nodiscard]] Set* find(core::SetId set) {
    const auto found = sets_.find(set);
    return found == sets_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] Set& at(core::SetId set) { return sets_.at(set); }
  [[nodiscard]] const Set& at(core::SetId set) const { return sets_.at(set); }
  [[nodiscard]] std::map<core::SetId, Set>& all() noexcept { return sets_; }

  /// The ranks that make the request, ascending.
  [[nodiscard]] const std::vector<std::int32_t>& members_of(const Request& request) const {
    return request.members.empty() ? sets_.at(request.set).members : request.members;
  }
  /// The text for the set's group; empty for the world, and for a removed set.
  [[nodiscard]] std::string words_of(core::SetId set) const {
    const auto found = sets_.find(set);
    return found == sets_.end() ? std::string() : found->second.words;
  }
  /// The text for the request.
  [[nodiscard]] std::string subject_of(const Request& request) const { return subject(words_of(request.set), request); }

 private:
  TensorTable& tensors_;
  std::int64_t threshold_;
  std::map<core::SetId, Set> sets_;
  core::SetId next_ = core::kGlobalSet;
};

/// The sets in which a request is ready. Requests enter the sets' queues here. The calls of a set's sequence have a
/// queue of their own; together they have one place in the set's queue.
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
  [[nodiscard]] const std::vector<core::SetId>& drain_waiting() {
    drained_.clear();
    drained_.swap(waiting_);
    std::sort(drained_.begin(), drained_.end());
    return drained_;
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
  std::vector<core::SetId> drained_;  ///< kept between calls to reuse its memory
};

}  // namespace kolo::control::sequencer
