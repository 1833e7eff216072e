// SPDX-License-Identifier: Apache-2.0
//
// A world that is a communicator of the program's.
#pragma once

#include <mpi.h>

#include <memory>

#include "mpi/mpi_bootstrap.hpp"

namespace kolo::mpi {

/// Collective over `theirs`, which is duplicated, so that nothing of ours meets the program's messages. Throws Error:
/// transport when MPI is not initialised, is finalised, or fails, or when not all ranks come within `patience` (the
/// sentence names them, and says that MPI cannot be finalised any more); unsupported on a thread that may not call MPI;
/// invalid_argument for MPI_COMM_NULL and intercommunicators.
std::unique_ptr<MpiBootstrap> borrow(MPI_Comm theirs, NodeJoiner joiner, base::Duration patience);

}  // namespace kolo::mpi
