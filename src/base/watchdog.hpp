// SPDX-License-Identifier: Apache-2.0
//
// A deadline for a call of somebody else's that has none.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.hpp"

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
  std::mutex mutex_;
  std::condition_variable called_off_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace kolo::base
