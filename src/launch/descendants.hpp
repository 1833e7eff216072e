// SPDX-License-Identifier: Apache-2.0
//
// Processes that ranks have started and not ended.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

namespace kolo::launch {

/// While this object exists, this process becomes the parent of its descendants whose parents end. (If a rank is a
/// shell script, a signal ends the shell, but not the program that the shell runs.)
class AdoptedProcesses {
 public:
  /// Children that exist already do not count. Throws Error (transport).
  AdoptedProcesses();
  ~AdoptedProcesses();
  AdoptedProcesses(const AdoptedProcesses&) = delete;
  AdoptedProcesses& operator=(const AdoptedProcesses&) = delete;

  /// The adopted processes that run, without `others`; reaps those that have ended. Empty if the system does not list a
  /// process's children.
  [[nodiscard]] std::vector<pid_t> find(const std::set<pid_t>& others) const;

 private:
  std::set<pid_t> before_;
  int reaper_before_ = 0;
};

}  // namespace kolo::launch
