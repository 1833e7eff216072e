// SPDX-License-Identifier: Apache-2.0
//
// Who initialises MPI, and who finalises it. MPI can be initialised once in a process, so `shutdown` never finalises
// it, and an MPI of the program's own is never finalised by us at all.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.hpp"

namespace kolo::mpi {

/// Looks a variable up in an environment (base::Lookup).
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Whether a launcher that MPI can find its job by has started this process: mpirun, mpiexec, or srun with PMI or
/// PMIx. A plain srun (--mpi=none) is none: MPI would know of one rank. Without a launcher MPI is not touched.
[[nodiscard]] bool started_by_launcher(const Lookup& lookup);

/// "Open MPI v4.1.4": the library that this process has, initialised or not.
[[nodiscard]] std::string describe_library();

/// What Kolo did to the process's MPI. One instance a process, owned by src/api; calls one at a time.
class Lifetime {
 public:
  /// Initialises MPI with the highest thread level it gives, unless that has been done, by us or by the program.
  /// MPI_Init has no deadline and names nobody: when it has not returned within `patience` the process ends, with exit
  /// status 1 and a sentence on stderr that says which of the job's processes this is, as far as `environment` tells.
  /// Throws Error(transport) when MPI has been finalised already.
  void begin(base::Duration patience, const Lookup& environment);
  /// Whether MPI can be finalised: not after a fatal error, nor after a start that failed, for operations may be
  /// open with ranks that are gone.
  void leave_open(bool open) noexcept { leave_open_ = open; }
  /// Whether the others leave at the same time as this rank. Then `end` lets MPI deliver what it may still hold back
  /// (transport::InterNode::push).
  void leave_together(bool together) noexcept { together_ = together; }
  /// At the end of the process: finalises an MPI that `begin` initialised, unless somebody has, `leave_open` forbids
  /// it, or this thread may not. Waits for nobody where the library allows that (Open MPI): ranks leave when they like.
  /// Should it not return within `patience`, the process ends with exit status `status` and a sentence on stderr.
  void end(base::Duration patience, int status) noexcept;

 private:
  bool ours_ = false;
  bool leave_open_ = false;
  bool together_ = false;
};

}  // namespace kolo::mpi
