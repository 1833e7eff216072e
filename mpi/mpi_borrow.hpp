// SPDX-License-Identifier: Apache-2.0
//
// Makes a communicator of the program's a world.
#pragma once

#include <memory>

#include "mpi/mpi_bootstrap.hpp"
#include "mpi/mpi_calls.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

/// Collective over `theirs`. It is duplicated, so that Kolo's messages do not meet the program's. Throws Error:
/// transport if MPI is not initialised, is finalised, or fails, or if not all ranks come within `patience` (the
/// sentence names the missing ranks, and says that MPI cannot be finalised any more); unsupported on a thread that may
/// not call MPI; invalid_argument for MPI_COMM_NULL and intercommunicators.
std::unique_ptr<MpiBootstrap> borrow(MPI_Comm theirs, NodeJoiner joiner, base::Duration patience);

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
