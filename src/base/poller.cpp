// SPDX-License-Identifier: Apache-2.0
#include "base/poller.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::base {
namespace {

std::uint32_t to_epoll(Poller::Interest interest) noexcept {
  std::uint32_t events = EPOLLRDHUP;
  if ((interest & Poller::kReadable) != 0) events |= EPOLLIN;
  if ((interest & Poller::kWritable) != 0) events |= EPOLLOUT;
  if ((interest & Poller::kOnce) != 0) events |= EPOLLONESHOT;
  return events;
}

Poller::Interest from_epoll(std::uint32_t events) noexcept {
  Poller::Interest interest = 0;
  if ((events & EPOLLIN) != 0) interest |= Poller::kReadable;
  if ((events & EPOLLOUT) != 0) interest |= Poller::kWritable;
  if ((events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0) interest |= Poller::kClosed;
  return interest;
}

/// Timeouts shorter than this are not rounded.
constexpr std::chrono::milliseconds kFine{10};

int to_milliseconds(std::optional<std::chrono::nanoseconds> timeout) noexcept {
  if (!timeout) return -1;
  if (timeout->count() <= 0) return 0;
  // Up, not down: a thread that wakes just before its deadline would spin until it.
  const auto milliseconds = (timeout->count() - 1) / 1'000'000 + 1;
  return milliseconds > std::numeric_limits<int>::max() ? std::numeric_limits<int>::max()
                                                        : static_cast<int>(milliseconds);
}

}  // namespace

Poller::Poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!fd_) throw_errno("epoll_create1", errno);
}

void Poller::add(int fd, std::uint64_t tag, Interest interest) {
  epoll_event event{};
  event.events = to_epoll(interest);
  event.data.u64 = tag;
  const bool is_again = (interest & kOnce) != 0;  // decides which call is tried first, which saves a system call
  if (::epoll_ctl(fd_.get(), is_again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) == 0) return;
  const bool is_other = errno == (is_again ? ENOENT : EEXIST);
  if (is_other && ::epoll_ctl(fd_.get(), is_again ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0) return;
  const int error = errno;
  throw_errno("epoll_ctl: watching descriptor " + std::to_string(fd), error);
}

void Poller::remove(int fd) {
  epoll_event unused{};
  if (::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, &unused) == 0 || errno == ENOENT || errno == EBADF) return;
  const int error = errno;
  throw_errno("epoll_ctl: no longer watching descriptor " + std::to_string(fd), error);
}

void Poller::wait(std::optional<std::chrono::nanoseconds> timeout, std::vector<Event>& events) {
  events.clear();
  if (timeout && timeout->count() > 0 && *timeout < kFine) {
    sleep_until_ready(*timeout);
    timeout = std::chrono::nanoseconds(0);
  }
  // Further descriptors are reported next time: they stay ready, and epoll rotates among them.
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(fd_.get(), ready.data(), static_cast<int>(ready.size()), to_milliseconds(timeout));
  if (count < 0) {
    if (errno == EINTR) return;
    throw_errno("epoll_wait", errno);
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    events.push_back({event.data.u64, from_epoll(event.events)});
  }
}

/// epoll_wait takes whole milliseconds only. An epoll descriptor can itself be polled: it is readable when one of its
/// own is ready.
void Poller::sleep_until_ready(std::chrono::nanoseconds timeout) const {
  pollfd self{fd_.get(), POLLIN, 0};
  const timespec time{0, static_cast<long>(timeout.count())};
  if (::ppoll(&self, 1, &time, nullptr) < 0 && errno != EINTR) throw_errno("ppoll", errno);
}

EventFd::EventFd() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_) throw_errno("eventfd", errno);
}

void EventFd::signal() const noexcept {
  const std::uint64_t one = 1;
  while (::write(fd_.get(), &one, sizeof one) < 0) {
    if (errno == EAGAIN) return;  // the counter is full, so the descriptor is readable
    KOLO_CHECK(errno == EINTR) << "eventfd " << fd_.get() << ": " << errno_text(errno);
  }
}

bool EventFd::drain() const noexcept {
  std::uint64_t count = 0;
  while (::read(fd_.get(), &count, sizeof count) < 0) {
    if (errno == EAGAIN) return false;
    KOLO_CHECK(errno == EINTR) << "eventfd " << fd_.get() << ": " << errno_text(errno);
  }
  return true;
}

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
