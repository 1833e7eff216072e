// SPDX-License-Identifier: Apache-2.0
//
// The other ranks that have left, as far as the log has said so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kolo::control::participant {

class LeftRanks {
 public:
  void add(std::int32_t rank) { left_.insert(std::upper_bound(left_.begin(), left_.end(), rank), rank); }
  /// A submission has failed because a rank had left.
  void note_failure() {
    if (first_.empty()) first_ = left_;
  }

  [[nodiscard]] bool has(std::int32_t rank) const noexcept {
    return std::binary_search(left_.begin(), left_.end(), rank);
  }
  /// Whether one of these ranks, which ascend, has left.
  [[nodiscard]] bool has_any(const std::vector<std::int32_t>& ranks) const {
    return std::any_of(left_.begin(), left_.end(),
                       [&](auto who) { return std::binary_search(ranks.begin(), ranks.end(), who); });
  }
  /// Ascending.
  [[nodiscard]] const std::vector<std::int32_t>& all() const noexcept { return left_; }
  /// The ranks that had left when the first submission failed because of it; all, if none has failed.
  [[nodiscard]] const std::vector<std::int32_t>& first() const noexcept { return first_.empty() ? left_ : first_; }

 private:
  std::vector<std::int32_t> left_;
  std::vector<std::int32_t> first_;  ///< empty until a submission has failed because a rank had left
};

}  // namespace kolo::control::participant
