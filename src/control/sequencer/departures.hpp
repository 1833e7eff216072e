// SPDX-License-Identifier: Apache-2.0
//
// Which ranks have left, and which of these an error names. A rank that has left submits nothing more; one that has
// *gone*, too, is a process that has ended or cannot be reached. Nobody comes back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace kolo::control::sequencer {

class Departures {
 public:
  explicit Departures(int size)
      : departed_(static_cast<std::size_t>(size), false), gone_(static_cast<std::size_t>(size), false) {}

  [[nodiscard]] bool has_departed(std::int32_t rank) const { return departed_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool has_gone(std::int32_t rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool any_departed(const std::vector<std::int32_t>& ranks) const { return any_of(ranks, departed_); }
  [[nodiscard]] bool any_gone(const std::vector<std::int32_t>& ranks) const { return any_of(ranks, gone_); }
  [[nodiscard]] bool have_all_departed() const {
    return std::find(departed_.begin(), departed_.end(), false) == departed_.end();
  }

  /// Of these ranks those that have left, in the same order.
  [[nodiscard]] std::vector<std::int32_t> departed_of(const std::vector<std::int32_t>& ranks) const {
    std::vector<std::int32_t> departed;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(departed),
                 [this](std::int32_t rank) { return has_departed(rank); });
    return departed;
  }

  void leave(std::int32_t rank) { departed_[static_cast<std::size_t>(rank)] = true; }
  void go(std::int32_t rank) { gone_[static_cast<std::size_t>(rank)] = true; }

  /// Of these ranks, which have left, those whose leaving is not the consequence of another's. Ranks ascend.
  [[nodiscard]] std::vector<std::int32_t> first_of(const std::vector<std::int32_t>& ranks) {
    if (first_to_leave_.empty()) {
      for (std::size_t rank = 0; rank < departed_.size(); ++rank) {
        if (departed_[rank]) first_to_leave_.push_back(static_cast<std::int32_t>(rank));
      }
    }
    std::vector<std::int32_t> culprits;
    std::set_intersection(ranks.begin(), ranks.end(), first_to_leave_.begin(), first_to_leave_.end(),
                          std::back_inserter(culprits));
    return culprits;
  }
  /// Ranks that had left when the first submission failed because of that, ascending. Who leaves later has, as a rule,
  /// been told of them, and is not to be named.
  [[nodiscard]] const std::vector<std::int32_t>& first() const noexcept { return first_to_leave_; }

 private:
  static bool any_of(const std::vector<std::int32_t>& ranks, const std::vector<bool>& marked) {
    return std::any_of(ranks.begin(), ranks.end(), [&](std::int32_t r) { return marked[static_cast<std::size_t>(r)]; });
  }

  std::vector<bool> departed_;
  std::vector<bool> gone_;
  std::vector<std::int32_t> first_to_leave_;  ///< empty: no submission has failed yet
};

}  // namespace kolo::control::sequencer
