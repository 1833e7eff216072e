// SPDX-License-Identifier: Apache-2.0
#include "launch/descendants.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/system_error.hpp"

namespace kolo::launch {
namespace {

std::set<pid_t> children() {
  std::set<pid_t> all;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t one = 0; list >> one;) all.insert(one);
  }
  return all;
}

}  // namespace

AdoptedProcesses::AdoptedProcesses() : before_(children()) {
  if (::prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_) != 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    base::throw_errno("adopting what ranks leave behind", errno);
  }
}

AdoptedProcesses::~AdoptedProcesses() { static_cast<void>(::prctl(PR_SET_CHILD_SUBREAPER, reaper_before_)); }

std::vector<pid_t> AdoptedProcesses::find(const std::set<pid_t>& others) const {
  while (true) {
    std::vector<pid_t> found;
    bool is_new = false;
    for (const pid_t one : children()) {
      if (before_.count(one) != 0 || others.count(one) != 0) continue;
      const bool lives = ::waitpid(one, nullptr, WNOHANG) == 0;
      if (lives) found.push_back(one);
      is_new = is_new || !lives;  // its own children may have been adopted meanwhile
    }
    if (!is_new) return found;
  }
}

}  // namespace kolo::launch
