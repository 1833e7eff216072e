// SPDX-License-Identifier: Apache-2.0
//
// Initialising and finalising MPI. MPI can be initialised once in a process, so `shutdown` never finalises it. Kolo
// never finalises an MPI that the program initialised.
#pragma once

#include "base/clock.hpp"
#include "mpi/library/opening.hpp"

namespace kolo::mpi {

/// Whether and how Kolo has initialised the process's MPI. One instance in a process, owned by src/api; one call at a
/// time.
class Lifetime {
 public:
  /// Initialises MPI with the highest thread level that it provides, unless Kolo or the program has done so. MPI_Init
  /// has no deadline and does not name missing ranks. If it has not returned within `patience`, the process ends with
  /// exit status 1 and a sentence on stderr that says which of the job's processes this is, as far as `environment`
  /// tells. Throws Error(transport) when MPI has been finalised already. `abi`: of `open`.
  void begin(const Abi& abi, base::Duration patience, const Lookup& environment);
  /// Whether MPI must stay open: after a fatal error, and after a start that failed, operations may be open with ranks
  /// that are gone.
  void leave_open(bool open) noexcept { leave_open_ = open; }
  /// Whether the others leave at the same time as this rank. Then `end` lets MPI deliver what it may still hold back
  /// (transport::InterNode::push).
  void leave_together(bool together) noexcept { together_ = together; }
  /// At the end of the process: finalises an MPI that `begin` initialised, unless it is finalised already, `leave_open`
  /// forbids it, or this thread may not. Does not wait for other ranks if the library allows that (Open MPI). If it
  /// does not return within `patience`, the process ends with exit status `status` and a sentence on stderr.
  void end(base::Duration patience, int status) noexcept;

 private:
  const Abi* ours_ = nullptr;  // through which MPI was initialised here
  bool leave_open_ = false;
  bool together_ = false;
};

}  // namespace kolo::mpi
