// SPDX-License-Identifier: Apache-2.0
#ifdef KOLO_HAS_MPI

#include <kolo/mpi.hpp>

#include "api/access.hpp"
#include "api/assemble.hpp"
#include "api/launch.hpp"
#include "mpi/mpi_borrow.hpp"

namespace kolo::mpi {

Bootstrap bootstrap(MPI_Comm communicator) {
  return Bootstrap(std::make_unique<detail::BootstrapHolder>(
      borrow(communicator, api::join_node_of_processes, api::connect_patience({}))));
}

}  // namespace kolo::mpi

#endif
