// SPDX-License-Identifier: Apache-2.0
//
// An alarm for a thread that sleeps with a Poller, set by another one without waking it.
#pragma once

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace kolo::base {

/// Not inherited by exec; never blocks. `set` and `drain` may be called from any thread.
class TimerFd {
 public:
  /// Throws Error(transport).
  TimerFd();

  /// Makes the descriptor readable at `when` (immediately if that has passed). Replaces an earlier alarm that has not
  /// gone off.
  void set(Time when) noexcept;
  /// Makes it unreadable until the next alarm.
  void drain() const noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace kolo::base
