// SPDX-License-Identifier: Apache-2.0
//
// A wake-up descriptor: one thread sleeps on it with a Poller, and any thread (or process that inherited it) signals
// it.
#pragma once

#include "base/unique_fd.hpp"

namespace kolo::base {

/// Not inherited by exec; never blocks. `signal` and `drain` may be called from any thread.
class EventFd {
 public:
  /// Throws Error(transport).
  EventFd();

  /// Makes the descriptor readable until the next `drain`. Many signals are one.
  void signal() const noexcept;
  /// Forgets the signals so far; true when there were any.
  bool drain() const noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace kolo::base
