// SPDX-License-Identifier: Apache-2.0
#include "base/watchdog.hpp"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/thread_name.hpp"

namespace kolo::base {

Watchdog::Watchdog(Duration patience, std::string last_words, int status) {
  const Time until = after(now(), patience);
  try {
    thread_ = std::thread([this, until, words = std::move(last_words) + "\n", status] {
      set_thread_name("kolo-watchdog");
      const MutexLock lock(mutex_);
      bool in_time = true;
      while (in_time && !over_) in_time = called_off_.wait_until(mutex_, until);
      if (over_) return;
      // The process ends whether or not this can be written.
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, words.data(), words.size());
      ::_exit(status);
    });
  } catch (const std::system_error&) {
    // There is no deadline then: the caller's work is more important.
  }
}

Watchdog::~Watchdog() {
  {
    const MutexLock lock(mutex_);
    over_ = true;
  }
  called_off_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace kolo::base
