// SPDX-License-Identifier: Apache-2.0
//
// What ranks say of other ranks: whom the job's error names, whose end was seen, who left, who was late. Pure.
#pragma once

#include <vector>

#include "why/history.hpp"

namespace kolo::why {

class Testimony {
 public:
  /// `history` outlives it.
  explicit Testimony(const History& history) : history_(history) {}

  /// Whether the log has said for which rank it ended the job.
  [[nodiscard]] bool is_decided() const;
  /// The rank that the job's error, the ends that others saw, or else the first fatal error's sentence names; -1: none.
  [[nodiscard]] int named() const;
  /// Ranks that have no file, and have not left in order; ascending.
  [[nodiscard]] std::vector<int> silent_ranks() const;
  /// Ranks that said themselves that they cannot go on: the first one of them; -1: none did.
  [[nodiscard]] int first_to_give_up() const;

  /// Whether the log has said that the rank is late.
  [[nodiscard]] bool is_called_late(int rank) const;
  /// The same, or a deadline has ended the job.
  [[nodiscard]] bool is_late(int rank) const;

  /// Whether it left before it was told of an error, by its own file, or as others heard.
  [[nodiscard]] bool has_left(int rank) const;
  /// The rank whose leaving failed operations of others; -1: none did.
  [[nodiscard]] int deserter() const;

 private:
  [[nodiscard]] int named_by_sentence() const;
  [[nodiscard]] int left_by_first_failure(const std::vector<int>& ranks) const;
  [[nodiscard]] int first_to_leave() const;

  const History& history_;
};

}  // namespace kolo::why
