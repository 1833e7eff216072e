// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C. mpirun tells every rank by SIGTERM, each at a time of its own, and kills after a second; so a signal is only
// noted, and the ranks agree at their next look to stop (measure.hpp): all leave the job in order, and rank 0 tells
// what was measured so far. A second signal ends the process at once.
#pragma once

#include <stdexcept>

namespace kolo_bench {

/// Thrown on all ranks alike. Exit code 130.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on SIGINT and SIGTERM are noted. Throws std::system_error.
void note_interrupts();
/// Whether one has come to this process.
[[nodiscard]] bool interrupted() noexcept;

}  // namespace kolo_bench
