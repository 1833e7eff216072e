// SPDX-License-Identifier: Apache-2.0
//
// Questions of the sequencer's (control::Query) that this rank has not answered. What a rank says of itself should be
// said once nothing more can be moved here; a rank that always has something to move answers all the same, soon. One
// thread at a time (the engine's driver).
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "control/participant.hpp"

namespace kolo::engine {

class Questions {
 public:
  [[nodiscard]] bool empty() const noexcept { return open_.empty(); }
  void add(control::AnswerQuery query, base::Time now) {
    if (open_.empty()) since_ = now;
    open_.push_back(std::move(query));
  }
  /// `advanced`: the pass has moved something.
  [[nodiscard]] bool are_due(bool advanced, base::Time now) const noexcept {
    return !open_.empty() && (!advanced || now >= since_ + kLongest);
  }
  [[nodiscard]] std::vector<control::AnswerQuery> take() noexcept { return std::exchange(open_, {}); }

 private:
  /// How long a rank that always has something to move puts off its answer.
  static constexpr std::chrono::milliseconds kLongest{100};
  std::vector<control::AnswerQuery> open_;
  base::Time since_{};  ///< the first of them came
};

}  // namespace kolo::engine
