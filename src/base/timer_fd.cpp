// SPDX-License-Identifier: Apache-2.0
#include "base/timer_fd.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>

#include <sys/timerfd.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::base {

TimerFd::TimerFd() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!fd_.valid()) throw_errno("timerfd_create", errno);
}

void TimerFd::set(Time when) noexcept {
  using std::chrono::nanoseconds;
  // `Time` uses the same clock. A time of zero would switch the timer off.
  const auto since = std::max(std::chrono::duration_cast<nanoseconds>(when.time_since_epoch()), nanoseconds(1));
  itimerspec alarm{};
  alarm.it_value.tv_sec = static_cast<time_t>(since.count() / 1'000'000'000);
  alarm.it_value.tv_nsec = static_cast<long>(since.count() % 1'000'000'000);
  const int failed = ::timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &alarm, nullptr);
  KOLO_CHECK(failed == 0) << "timerfd " << fd_.get() << ": " << errno_text(errno);
}

void TimerFd::drain() const noexcept {
  std::uint64_t times = 0;
  [[maybe_unused]] const ssize_t bytes = ::read(fd_.get(), &times, sizeof times);
}

}  // namespace kolo::base
