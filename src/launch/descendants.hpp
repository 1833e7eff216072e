// SPDX-License-Identifier: Apache-2.0
//
// Processes that ranks have started and left behind.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace kolo::launch {

/// While it lives, this process becomes the parent of those of its descendants whose parents end: a rank that is a
/// shell's script ends by a signal, and the program that it runs does not.
class AdoptedProcesses {
 public:
  /// Children that are there already are none of them. Throws Error (transport).
  AdoptedProcesses();
  ~AdoptedProcesses();
  AdoptedProcesses(const AdoptedProcesses&) = delete;
  AdoptedProcesses& operator=(const AdoptedProcesses&) = delete;

  /// Those that are there, but for the given ones; waits for those that have ended. None, where the system does not
  /// list a process's children.
  [[nodiscard]] std::vector<pid_t> find(const std::set<pid_t>& others) const;

 private:
  std::set<pid_t> before_;
  int reaper_before_ = 0;
};

}  // namespace kolo::launch
