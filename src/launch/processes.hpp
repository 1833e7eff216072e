// SPDX-License-Identifier: Apache-2.0
//
// Processes of this machine that end together: forked, watched, their output passed on.
//
// A process that ends badly (an exit status other than 0, a signal) ends the others: they get kGrace to notice by
// themselves (a rank that Kolo tells of the death can still save its work), then SIGTERM, then SIGKILL. A signal that
// ends a job is passed on, and the processes get kSignalGrace to save their work; a second one kills them at once. When
// this process dies, however it dies, the system kills them.
#pragma once

#include <csignal>
#include <cstdint>
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
  std::vector<Ending> endings;  ///< in the order in which they ended; of those seen at once the killed ones first
  std::optional<int> signal;    ///< that this process got: it was passed on, and all have ended
};

/// What becomes of processes that the forked ones have started, once all of these have ended.
enum class Descendants : std::uint8_t {
  left_alone,
  ended,  ///< they get the signal that ended the job, or SIGTERM; then SIGKILL. (Not when this process is killed.)
};

/// Gives this process a standard input, output and error where it was started without one: else the next descriptor
/// that is opened takes its number, and what is written there goes to a socket. To be called before any is. Throws
/// Error (transport).
void open_standard_descriptors();

/// Forks `count` processes. Each runs `body(rank, report)` and ends with what that returns; it ends without the
/// destructors of this process's objects. Standard output and standard error of each come out of this process's own, in
/// whole lines; rank 0 has its standard input, and the others have none. The signals of TakenSignals are taken by this
/// thread meanwhile: those that end a job do, SIGUSR1 and SIGUSR2 are passed on. The limit of open files is raised as
/// far as that many ranks need and the system allows. Returns when all have ended. Throws Error (transport) when they
/// cannot be started; then none is left.
///
/// Only the calling thread exists in the processes: a lock that another thread holds stays locked there.
[[nodiscard]] Outcome run_processes(int count, const std::function<int(int rank, int report)>& body,
                                    Descendants descendants = Descendants::left_alone);

/// "was killed by signal 9 (Killed)", "ended with exit status 3".
[[nodiscard]] std::string describe_status(int status);
/// What a shell makes of it.
[[nodiscard]] int exit_status_of(int status) noexcept;

}  // namespace kolo::launch
