// SPDX-License-Identifier: Apache-2.0
//
// What a process needs that forks others: pipes to them, the signals that come meanwhile, and what they leave behind.
#pragma once

#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

#include "base/unique_fd.hpp"

namespace kolo::launch {

struct Pipe {
  base::UniqueFd read;
  base::UniqueFd write;

  /// Both ends are closed by exec. Throws Error (transport).
  [[nodiscard]] static Pipe make();
};

/// Flushes the C and C++ output streams of this process: before a fork, and before the end of what was forked.
void flush_streams() noexcept;

/// While this object exists, signals are read from a descriptor instead of by a handler.
///
/// The signals are those that end a job (SIGINT, SIGTERM, SIGHUP), unless this process ignores them, as under nohup (a
/// blocked signal would still be delivered), and those that warn of the end (SIGUSR1, SIGUSR2), unless the program
/// handles them. SIGCHLD is not ignored meanwhile, so that children can be waited for. It applies to the thread that
/// makes the object.
class TakenSignals {
 public:
  /// `children`: the descriptor is readable, too, when a child has ended.
  explicit TakenSignals(bool children);
  ~TakenSignals() { restore(); }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  struct Taken {
    int signal = 0;
    bool by_terminal = false;  ///< the terminal sent it to every process of its foreground group
  };

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::optional<Taken> take() const;
  /// Restores the earlier state. For a forked child, which does not take the signals.
  void restore() noexcept;

 private:
  sigset_t before_{};
  struct sigaction child_before_ = {};
  base::UniqueFd fd_;
};

/// While this object exists, the limit of open files is raised for this process, which has five for each rank, and for
/// rank 0, which has as many and its own. Only as far as needed, because some programs loop over all possible
/// descriptors.
class RaisedLimit {
 public:
  /// Throws Error (transport).
  explicit RaisedLimit(int ranks);
  ~RaisedLimit();
  RaisedLimit(const RaisedLimit&) = delete;
  RaisedLimit& operator=(const RaisedLimit&) = delete;

 private:
  rlimit before_ = {};
};

/// Whether the signal ends a job.
[[nodiscard]] bool is_end(int signal) noexcept;

/// Processes that ranks have started and not ended. While this object exists, this process becomes the parent of its
/// descendants whose parents end. (If a rank is a shell script, a signal ends the shell, but not the program that the
/// shell runs.)
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

/// Whether the process, or the one that it was forked from, was started with this variable ("NAME=value"). False if
/// that cannot be read.
[[nodiscard]] bool was_started_with(pid_t process, const std::string& variable);

}  // namespace kolo::launch
