// SPDX-License-Identifier: Apache-2.0
//
// The other ranks that have left, as far as the log has said so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace kolo::control::participant {

class DepartedRanks {
 public:
  /// `because`: the first cause; -1: the rank itself.
  void add(std::int32_t rank, std::int32_t because) {
    departed_.insert(std::upper_bound(departed_.begin(), departed_.end(), rank), rank);
    order_.push_back(rank);
    if (because >= 0) because_.emplace(rank, because);
  }
  /// A submission has failed because a rank had left.
  void note_failure() {
    if (first_.empty()) first_ = leaders();
  }

  [[nodiscard]] bool has(std::int32_t rank) const noexcept {
    return std::binary_search(departed_.begin(), departed_.end(), rank);
  }
  /// Whether one of these ranks, which ascend, has left.
  [[nodiscard]] bool has_any(const std::vector<std::int32_t>& ranks) const {
    return std::any_of(departed_.begin(), departed_.end(),
                       [&](auto who) { return std::binary_search(ranks.begin(), ranks.end(), who); });
  }
  /// Ascending.
  [[nodiscard]] const std::vector<std::int32_t>& all() const noexcept { return departed_; }
  /// The first causes of those that have left because of another one's end.
  [[nodiscard]] const std::map<std::int32_t, std::int32_t>& because() const noexcept { return because_; }
  /// The ranks that had left when the first submission failed because of it; all, if none has failed. Those that left
  /// because of another one's end are not among them.
  [[nodiscard]] std::vector<std::int32_t> first() const { return first_.empty() ? leaders() : first_; }
  /// Of these ranks, or of all where there are none, the one that left before the others; -1: none has.
  [[nodiscard]] std::int32_t earliest_of(const std::vector<std::int32_t>& ranks) const {
    for (const std::int32_t rank : order_) {
      if (ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return rank;
    }
    return -1;
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> leaders() const {
    std::vector<std::int32_t> leaders;
    std::copy_if(departed_.begin(), departed_.end(), std::back_inserter(leaders),
                 [this](std::int32_t rank) { return because_.count(rank) == 0; });
    return leaders;
  }

  std::vector<std::int32_t> departed_;
  std::vector<std::int32_t> order_;  ///< the same, as they left
  std::map<std::int32_t, std::int32_t> because_;
  std::vector<std::int32_t> first_;  ///< empty until a submission has failed because a rank had left
};

}  // namespace kolo::control::participant
