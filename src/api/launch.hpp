// SPDX-License-Identifier: Apache-2.0
//
// Which bootstrap a program gets: the launcher's, where it was started by one and this build has MPI; else a world of
// one, without touching MPI.
#pragma once

#include <memory>

#include "api/bootstrap_holder.hpp"
#include "base/clock.hpp"
#ifdef KOLO_HAS_MPI
#include "mpi/mpi_lifetime.hpp"
#endif

namespace kolo::api {

/// A world of one.
std::unique_ptr<detail::BootstrapHolder> solo_bootstrap();

#ifdef KOLO_HAS_MPI
/// `core::Bootstrap::join_node` for processes: what the MPI room, which knows nothing of shared memory, is given.
std::shared_ptr<core::NodeLink> join_node_of_processes(core::Bootstrap& bootstrap, const core::Topology& topology,
                                                       std::size_t bytes, const std::string& job_key,
                                                       base::Duration patience);
#endif

/// What the process owes its launcher. One instance a process; one thread at a time.
class Launcher {
 public:
  /// Throws Error (transport): a launcher has started several processes, but this build has no MPI, MPI cannot be
  /// initialised, or not all ranks come within `patience`.
  std::unique_ptr<detail::BootstrapHolder> bootstrap(base::Duration patience);
  /// There was a fault of the world: MPI would wait for ranks that are gone.
  void note_fault() noexcept;
  /// At the end of the process: finalises an MPI that Kolo initialised, unless there was a fault.
  void end() noexcept;

 private:
#ifdef KOLO_HAS_MPI
  mpi::Lifetime mpi_;
#endif
};

}  // namespace kolo::api
