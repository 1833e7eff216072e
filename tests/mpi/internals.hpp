// SPDX-License-Identifier: Apache-2.0
//
// The inside of mpi/, compiled for the ABI of this program's own MPI. Its headers come before <mpi.h>, whose macros
// have the same names.
#pragma once

#include "base/settings.hpp"
#include "mpi/library/lifetime.hpp"
#include "mpi/mpi_api.hpp"
#include "mpi/mpi_bootstrap.hpp"
#include "mpi/mpi_inter_node.hpp"
#include "tests/mpi/job.hpp"

namespace kolo::mpi {
using namespace KOLO_MPI_NAMESPACE;
}

namespace kolo::testing {

/// Initialises the process's MPI.
inline void begin(mpi::Lifetime& lifetime, base::Duration patience) {
  lifetime.begin(mpi::open(base::process_environment()), patience, base::process_environment());
}

}  // namespace kolo::testing
