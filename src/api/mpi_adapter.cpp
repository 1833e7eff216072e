// SPDX-License-Identifier: Apache-2.0
//
// kolo/mpi.hpp, in a build with MPI.
#ifdef KOLO_HAS_MPI

#include <kolo/mpi.hpp>

#include <memory>
#include <utility>

#include "api/bootstrap_holder.hpp"
#include "mpi/mpi_borrow.hpp"
#include "shm/handover.hpp"

namespace kolo::mpi {

Bootstrap bootstrap(MPI_Comm communicator) {
  auto borrowed =
      borrow(communicator, [](core::Bootstrap& among, const core::Topology& topology, std::size_t bytes,
                              const std::string& job_key) { return shm::join_node(among, topology, bytes, job_key); });
  return Bootstrap(std::make_unique<detail::BootstrapHolder>(std::move(borrowed)));
}

}  // namespace kolo::mpi

#endif
