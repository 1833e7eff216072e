// SPDX-License-Identifier: Apache-2.0
#include <kolo/mpi.hpp>

#include "api/access.hpp"
#include "api/assemble.hpp"
#include "api/launch.hpp"
#include "base/settings.hpp"
#include "mpi/library/opening.hpp"

namespace kolo::mpi {
namespace {

Bootstrap borrowed(const Abi& its, const void* communicator) {
  const Abi& abi = open_for(its, base::process_environment());
  return Bootstrap(std::make_unique<detail::BootstrapHolder>(abi.borrow(communicator, api::connect_patience({}))));
}

}  // namespace

Bootstrap bootstrap(ompi_communicator_t* communicator) { return borrowed(openmpi::abi, &communicator); }
Bootstrap bootstrap(int communicator) { return borrowed(mpich::abi, &communicator); }
Bootstrap bootstrap(MPI_ABI_Comm* communicator) { return borrowed(standard::abi, &communicator); }

}  // namespace kolo::mpi
