// SPDX-License-Identifier: Apache-2.0
//
// Processes of this machine that end together. They are forked and watched, and their output is passed on.
//
// A process that ends badly (an exit status other than 0, a signal) ends the others: they have kGrace to end by
// themselves (a rank that learns of the death from Kolo can save its work), then get SIGTERM, then SIGKILL. A signal
// that ends a job is passed on, and the processes have kSignalGrace to save their work; a second signal kills them at
// once. When this process dies for any reason, the system kills them, but not what they have started: supervision.hpp
// does.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kolo::launch {

/// How one process ended.
struct ProcessEnd {
  int rank = 0;
  int status = 0;      ///< as waitpid returns it
  std::string report;  ///< what `body` wrote to the descriptor that it was given
};

/// How all processes ended.
struct Outcome {
  std::vector<ProcessEnd> endings;  ///< in the order in which they ended; of those seen at once the killed ones first
  std::optional<int> signal;        ///< that this process got: it was passed on, and all have ended
  int output_error = 0;             ///< why output of theirs could not be passed on; 0: it was
};

/// What happens to processes that the forked ones have started, once all forked ones have ended.
enum class Descendants : std::uint8_t {
  left_alone,
  ended,  ///< they get the signal that ended the job, or SIGTERM; then SIGKILL
};

/// Opens standard input, output and error if this process was started without one. Otherwise the next opened descriptor
/// would get its number, and output would go into a socket. Call it before any descriptor is opened. Throws Error
/// (transport).
void open_standard_descriptors();

/// Forks `count` processes. Each runs `body(rank, report)` and ends with its result as exit status, without the
/// destructors of this process's objects. This process passes on their standard output and error, in whole lines; rank
/// 0 has its standard input, and the others have none. This thread takes the signals of TakenSignals meanwhile: those
/// that end a job end it, SIGUSR1 and SIGUSR2 are passed on. The limit of open files is raised as far as that many
/// ranks need and the system allows. Returns when all have ended. Throws Error (transport) if they cannot be started;
/// then none is left. `lifeline` (-1: there is none): once it can be read all are killed (supervision.hpp).
///
/// Only the calling thread exists in the processes: a lock that another thread holds stays locked there.
[[nodiscard]] Outcome run_processes(int count, const std::function<int(int rank, int report)>& body,
                                    Descendants descendants = Descendants::left_alone, int lifeline = -1);

/// "signal 9 (Killed)".
[[nodiscard]] std::string describe_signal(int signal);
/// "was killed by signal 9 (Killed)", "ended with exit status 3".
[[nodiscard]] std::string describe_status(int status);
/// The exit status that a shell would give it.
[[nodiscard]] int exit_status_of(int status) noexcept;

}  // namespace kolo::launch
