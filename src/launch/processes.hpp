// SPDX-License-Identifier: Apache-2.0
//
// Processes of this machine that end together: forked, watched, their output passed on.
//
// A process that ends badly (an exit status other than 0, a signal) ends the others: they get kGrace to notice by
// themselves (a rank that Kolo tells of the death can still save its work), then SIGTERM, then SIGKILL. When this
// process dies, however it dies, the system kills them.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kolo::launch {

/// How one process ended.
struct Ending {
  int rank = 0;
  int status = 0;      ///< as waitpid tells it
  std::string report;  ///< what `body` wrote to the descriptor that it was given
};

/// What became of all.
struct Outcome {
  std::vector<Ending> endings;  ///< in the order in which they ended
  std::optional<int> signal;    ///< that this process got: it was passed on, and all have ended
};

/// Forks `count` processes. Each runs `body(rank, report)` and ends with what that returns; it ends without the
/// destructors of this process's objects. Standard output and standard error of each come out of this process's own, in
/// whole lines; rank 0 has its standard input, and the others have none. SIGINT, SIGTERM and SIGHUP are taken by this
/// thread meanwhile. Returns when all have ended. Throws Error (transport) when they cannot be started; then none is
/// left.
///
/// Only the calling thread exists in the processes: a lock that another thread holds stays locked there.
[[nodiscard]] Outcome run_processes(int count, const std::function<int(int rank, int report)>& body);

/// "was killed by signal 9 (Killed)", "ended with exit status 3".
[[nodiscard]] std::string describe_status(int status);
/// What a shell makes of it.
[[nodiscard]] int exit_status_of(int status) noexcept;

}  // namespace kolo::launch
