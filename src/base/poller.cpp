// SPDX-License-Identifier: Apache-2.0
#include "base/poller.hpp"

#include <array>
#include <cerrno>
#include <limits>
#include <string>

#include <poll.h>
#include <sys/epoll.h>

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

}  // namespace kolo::base
