// SPDX-License-Identifier: Apache-2.0
#include "base/system_error.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

#include <kolo/error.hpp>

namespace kolo::base {

std::string errno_text(int error) {
  return std::generic_category().message(error) + " (errno " + std::to_string(error) + ")";
}

std::string remedy(int error) {
  if (error == ENFILE) return "; the whole system has no file descriptor left (sysctl fs.file-max)";
  if (error != EMFILE && error != ETOOMANYREFS) return {};
  rlimit limit = {};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
  return "; the limit is " + (known ? std::to_string(limit.rlim_cur) : std::string("unknown")) +
         " file descriptors: raise it (ulimit -n)";
}

std::string start_remedy(int error) {
  if (error != EAGAIN) return {};
  return "; a limit of processes and threads was met: raise the user's (ulimit -u) or the container's (pids.max), or "
         "start fewer ranks";
}

void throw_errno(std::string_view what, int error) {
  throw Error(error == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::transport,
              std::string(what) + ": " + errno_text(error) + remedy(error));
}

}  // namespace kolo::base
