// SPDX-License-Identifier: Apache-2.0
//
// kolo-run's part of an elastic job on one machine: the processes that it has started, and the keeper that decides
// which of them are ranks (membership/keeper.hpp). This turns forks, ends of processes, sockets (notice_link.hpp),
// signals and the clock into what happens to the keeper, and does what it wants done. It decides nothing itself.
//
// A process has died when it was reaped, and all that it had started and left running has ended, too: those processes
// are found by the KOLO_KEEPER in their environment, which is that process's alone. They are killed, or get SIGTERM and
// two seconds where it ended with exit status 0. (Where the job ends they end with it: family.hpp.)
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "membership/keeper.hpp"

namespace kolo::launch {

struct ElasticOutcome {
  std::optional<int> signal;  ///< that this process got: it was passed on, and all have ended
  int status = 0;             ///< for this process to exit with, if there was no signal
  int output_error = 0;       ///< as that of Outcome
};

/// Runs `processes` of them, in slots from 0, until all have ended and no other follows. Each runs
/// `body(slot, keeper)`, which becomes the program, with `keeper` as its KOLO_KEEPER. What happens to ranks is said on
/// standard error, a line each, after "kolo-run: ". As to output, signals and `lifeline`: as `run_processes`. Throws
/// Error (transport) if the processes cannot be started.
[[nodiscard]] ElasticOutcome run_elastic(int processes, const membership::JobLimits& limits,
                                         const std::function<int(int slot, const std::string& keeper)>& body,
                                         int lifeline);

}  // namespace kolo::launch
