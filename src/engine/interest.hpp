// SPDX-License-Identifier: Apache-2.0
//
// How many open operations somebody waits for, or has asked about: a planned batch that lacks something is reported
// only while there are any (docs/architecture.md, "Negotiation", rule 7).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "engine/operation.hpp"

namespace kolo::engine {

class Interest {
 public:
  /// Any thread. Whether the operation was not marked before. Counted first, and corrected: the count is never too low.
  bool mark(Operation& operation) noexcept {
    count_.fetch_add(1);
    if (operation.mark_interest()) return true;
    count_.fetch_sub(1);
    return false;
  }

  // -- the driver
  /// Whether there are any; before the mailbox is looked at: whoever is interested has submitted what he had to, so
  /// that no planned batch is reported as lacking what lies in the mailbox already.
  bool look() noexcept { return seen_ = count_.load() > 0; }
  [[nodiscard]] bool seen() const noexcept { return seen_; }
  /// Whether some have come since the driver looked last and saw none.
  [[nodiscard]] bool is_news() const noexcept { return count_.load() > 0 && !seen_; }
  /// One that was marked is done; taken off the count by `settle`, at the end of the pass.
  void note_met() noexcept { ++met_; }
  void settle() noexcept {
    if (met_ > 0) count_.fetch_sub(std::exchange(met_, 0));
  }

 private:
  std::atomic<std::int64_t> count_{0};
  std::int64_t met_ = 0;
  bool seen_ = false;
};

}  // namespace kolo::engine
