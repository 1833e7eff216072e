// SPDX-License-Identifier: Apache-2.0
//
// Which bootstrap a program gets, by the table in launch/start.hpp: a meeting of processes, MPI's, or a world of one,
// which does not touch MPI; an error where a launcher has started several processes that could only make a world of one
// each.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kolo/options.hpp>

#include "api/bootstrap_holder.hpp"
#include "api/forks.hpp"
#include "base/clock.hpp"
#include "base/settings.hpp"
#include "launch/start.hpp"
#ifdef KOLO_HAS_MPI
#include "mpi/mpi_lifetime.hpp"
#endif

namespace kolo::api {

/// A world of one.
std::unique_ptr<detail::BootstrapHolder> solo_bootstrap();

#ifdef KOLO_HAS_MPI
/// `bootstrap::Bootstrap::join_node` for processes: given to the MPI module, which knows nothing of shared memory.
std::shared_ptr<transport::NodeLink> join_node_of_processes(bootstrap::Bootstrap& bootstrap,
                                                            const core::Topology& topology, std::size_t bytes,
                                                            const std::string& job_key, base::Duration patience);
#endif

/// What the process owes its launcher. One instance a process; one thread at a time.
class Launcher {
 public:
  /// By MPI. Throws Error (transport): it cannot be initialised, or was before this process was forked, not all ranks
  /// come in time, or fewer come than a launcher has started. Null: there is no MPI in the build.
  std::unique_ptr<detail::BootstrapHolder> bootstrap(const Options& options);
  /// How the last membership in the job began or ended, and so whether MPI can be finalised: not after a fault or a
  /// start that failed, which may have left operations open with ranks that are gone. A later start that succeeds heals
  /// that.
  enum class State { joined, left_together, left_alone, broken };
  void note(State state) noexcept;
  /// At the end of the process: finalises an MPI that Kolo initialised in it, within `patience`; else the process ends
  /// with exit status `status`.
  void end(base::Duration patience, int status) noexcept;

 private:
#ifdef KOLO_HAS_MPI
  std::optional<Origin> origin_;  // of MPI, once it has begun
  mpi::Lifetime mpi_;
#endif
};

/// The ways in which this process may start, one line each, and which of them is taken.
std::vector<std::string> explain_start(const Options& options);

/// The bootstrap of this process by the way that is taken, if that is not MPI's; then null. May take as long as
/// resolvers of names and stores of the program's do. Throws Error (transport, invalid_setting, user_exception): a
/// launcher has started several processes that cannot be joined, what the way needs is not all there, or rank 0 cannot
/// listen.
std::unique_ptr<detail::BootstrapHolder> meet_without_mpi(const Options& options);

/// The bootstrap of processes that meet as `start` says. Throws Error (transport) when rank 0 cannot listen.
std::unique_ptr<detail::BootstrapHolder> meet(const launch::Start& start, const Options& options);

/// Throws Error (transport) when a launcher's variables speak of several processes, of which `found` make a world.
void expect_all_processes(const base::Lookup& environment, int found);

}  // namespace kolo::api
