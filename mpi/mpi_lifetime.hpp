// SPDX-License-Identifier: Apache-2.0
//
// Who initialises MPI, and who finalises it. MPI can be initialised once in a process, so `shutdown` never finalises
// it, and an MPI of the program's own is never finalised by us at all.
#pragma once

#include <functional>
#include <optional>
#include <string>

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
  /// Throws Error(transport) when it has been finalised already.
  void begin();
  /// After a fault of the world MPI must not be finalised: it would wait for ranks that are gone.
  void leave_open() noexcept { leave_open_ = true; }
  /// At the end of the process: finalises an MPI that `begin` initialised, unless somebody has, a fault forbids it, or
  /// this thread may not.
  void end() noexcept;

 private:
  bool ours_ = false;
  bool leave_open_ = false;
};

}  // namespace kolo::mpi
