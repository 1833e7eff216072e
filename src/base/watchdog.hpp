// SPDX-License-Identifier: Apache-2.0
//
// A deadline for a library's call that has none.
#pragma once

#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace kolo::base {

/// Ends the process if this object lives longer than `patience`: writes `last_words` to stderr and exits with `status`,
/// without destructors and exit handlers, which might hang as well. If the system cannot start a thread, there is no
/// deadline.
class Watchdog {
 public:
  Watchdog(Duration patience, std::string last_words, int status);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  Mutex mutex_;
  ConditionVariable called_off_;
  bool over_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kolo::base
