// SPDX-License-Identifier: Apache-2.0
#include "base/unique_fd.hpp"

#include <cerrno>

#include <unistd.h>

#include "base/check.hpp"

namespace kolo::base {

void UniqueFd::reset(int fd) noexcept {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  // Linux frees the descriptor whatever close returns (EINTR, EIO). Only EBADF means that other code has closed this
  // descriptor; the number may then be used for another file.
  const int result = ::close(old);
  KOLO_CHECK(result == 0 || errno != EBADF) << "descriptor " << old << " was closed behind its owner's back";
}

}  // namespace kolo::base
