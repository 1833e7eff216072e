// SPDX-License-Identifier: Apache-2.0
//
// Which ranks have left, and which of these an error names. A rank that has left submits nothing more; a rank that has
// *gone* has left, and its process has ended or cannot be reached. A rank never comes back.
#pragma once

#include <cstdint>
#include <vector>

namespace kolo::control::sequencer {

class Departures {
 public:
  explicit Departures(int size);

  [[nodiscard]] bool has_left(std::int32_t rank) const { return left_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool has_gone(std::int32_t rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool any_left(const std::vector<std::int32_t>& ranks) const { return any_of(ranks, left_); }
  [[nodiscard]] bool any_gone(const std::vector<std::int32_t>& ranks) const { return any_of(ranks, gone_); }
  [[nodiscard]] bool have_all_left() const;
  /// Those of these ranks that have left, in the same order.
  [[nodiscard]] std::vector<std::int32_t> left_of(const std::vector<std::int32_t>& ranks) const;

  void leave(std::int32_t rank) { left_[static_cast<std::size_t>(rank)] = true; }
  void go(std::int32_t rank) { gone_[static_cast<std::size_t>(rank)] = true; }

  /// Those of these ranks (which have all left) that an error names: the ranks that left first. Ranks ascend.
  [[nodiscard]] std::vector<std::int32_t> first_of(const std::vector<std::int32_t>& ranks);
  /// The ranks that had left when the first submission failed because of it, ascending. A rank that leaves later
  /// usually does so because of them, and is not named.
  [[nodiscard]] const std::vector<std::int32_t>& first() const noexcept { return first_to_leave_; }

 private:
  static bool any_of(const std::vector<std::int32_t>& ranks, const std::vector<bool>& marked);

  std::vector<bool> left_;
  std::vector<bool> gone_;
  std::vector<std::int32_t> first_to_leave_;  ///< empty: no submission has failed yet
};

}  // namespace kolo::control::sequencer
