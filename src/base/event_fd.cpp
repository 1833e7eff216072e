// SPDX-License-Identifier: Apache-2.0
#include "base/event_fd.hpp"

#include <cerrno>
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::base {

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

}  // namespace kolo::base
