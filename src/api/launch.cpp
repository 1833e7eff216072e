// SPDX-License-Identifier: Apache-2.0
#include "api/launch.hpp"

#include <optional>
#include <string>

#include <kolo/error.hpp>

#include "base/settings.hpp"
#include "shm/thread_world.hpp"
#ifdef KOLO_HAS_MPI
#include "mpi/mpi_bootstrap.hpp"
#include "shm/handover.hpp"
#endif

namespace kolo::api {

std::unique_ptr<detail::BootstrapHolder> solo_bootstrap() {
  return std::make_unique<detail::BootstrapHolder>(shm::ThreadWorld(1).bootstrap(0));
}

#ifdef KOLO_HAS_MPI

std::shared_ptr<core::NodeLink> join_node_of_processes(core::Bootstrap& bootstrap, const core::Topology& topology,
                                                       std::size_t bytes, const std::string& job_key,
                                                       base::Duration patience) {
  return shm::join_node(bootstrap, topology, bytes, job_key, patience);
}

std::unique_ptr<detail::BootstrapHolder> Launcher::bootstrap(base::Duration patience) {
  if (!mpi::started_by_launcher(base::process_environment())) return solo_bootstrap();
  mpi_.begin();
  return std::make_unique<detail::BootstrapHolder>(mpi::MpiBootstrap::of_world(join_node_of_processes, patience));
}

void Launcher::note_fault() noexcept { mpi_.leave_open(); }

void Launcher::end() noexcept { mpi_.end(); }

#else

std::unique_ptr<detail::BootstrapHolder> Launcher::bootstrap(base::Duration /*patience*/) {
  const base::Lookup environment = base::process_environment();
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const std::optional<std::string> size = environment(variable);
    if (size && *size != "1") {
      throw Error(ErrorCode::transport, std::string("a launcher has started ") + *size + " processes (" + variable +
                                            "), but this build of Kolo has no MPI: build it with KOLO_WITH_MPI=ON");
    }
  }
  return solo_bootstrap();
}

void Launcher::note_fault() noexcept {}

void Launcher::end() noexcept {}

#endif

}  // namespace kolo::api
