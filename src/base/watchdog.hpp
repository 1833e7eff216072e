// SPDX-License-Identifier: Apache-2.0
//
// A deadline for a call of somebody else's that has none.
#pragma once

#include <string>
#include <thread>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace kolo::base {

/// Ends the process, should this object live longer than `patience`: writes `last_words` to stderr and exits with
/// `status`, without destructors and exit handlers, which might hang as well. Where the system has no thread left there
/// is no deadline.
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
