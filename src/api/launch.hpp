// SPDX-License-Identifier: Apache-2.0
//
// Chooses a program's bootstrap, by the table in launch/start.hpp: processes that meet without MPI, MPI's, or a world
// of one, which does not touch MPI. An error if a launcher has started several processes, each of which could only make
// a world of one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kolo/options.hpp>

#include "api/access.hpp"
#include "api/forks.hpp"
#include "base/clock.hpp"
#include "base/settings.hpp"
#include "launch/start.hpp"
#include "mpi/library/lifetime.hpp"

namespace kolo::api {

/// A world of one.
std::unique_ptr<detail::BootstrapHolder> solo_bootstrap();

/// The process's membership in the launcher's job. One instance in a process; one thread at a time.
class Launcher {
 public:
  /// Opens and initialises the process's MPI. Throws Error: transport if it cannot be opened or initialised, or was
  /// initialised before this process was forked; invalid_setting (mpi/library/opening.hpp).
  void begin(const Options& options);
  /// The bootstrap by MPI, after `begin`. Throws Error (transport) if not all ranks come in time, or fewer than the
  /// launcher has started.
  std::unique_ptr<detail::BootstrapHolder> bootstrap(const Options& options);
  /// How the last membership in the job began or ended, which decides whether MPI can be finalised. It cannot after a
  /// fatal error or a failed start, because operations may be open with ranks that are gone; after a later successful
  /// start it can.
  enum class State { joined, left_together, left_alone, broken };
  void note(State state) noexcept;
  /// At the end of the process: finalises an MPI that Kolo initialised in it, within `patience`; else the process ends
  /// with exit status `status`.
  void end(base::Duration patience, int status) noexcept;

 private:
  std::optional<Origin> origin_;  // the process that initialised MPI
  const mpi::Abi* abi_ = nullptr;
  mpi::Lifetime mpi_;
};

/// The ways in which this process may start, one line each, with the one that is taken.
std::vector<std::string> explain_start(const Options& options);

/// The bootstrap of this process, or null if it starts by MPI. May take as long as name resolvers and the program's
/// stores do. Throws Error (transport, invalid_setting, user_exception) if a launcher has started several processes
/// that cannot be joined, if a variable is missing, or if rank 0 cannot listen.
std::unique_ptr<detail::BootstrapHolder> meet_without_mpi(const Options& options);

/// The bootstrap of processes that meet as `start` says. Throws Error (transport) when rank 0 cannot listen.
std::unique_ptr<detail::BootstrapHolder> meet(const launch::Start& start, const Options& options);

/// Throws Error (transport) if a launcher's variables say that there are more processes than `found`.
void expect_all_processes(const base::Lookup& environment, int found);

}  // namespace kolo::api
