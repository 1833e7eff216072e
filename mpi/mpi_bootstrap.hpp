// SPDX-License-Identifier: Apache-2.0
//
// Ranks find one another by MPI: makes a communicator of the program's a world.
#pragma once

#include <memory>

#include "bootstrap/bootstrap.hpp"
#include "mpi/mpi_calls.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

/// Collective over `theirs`. It is duplicated, so that Kolo's messages do not meet the program's. Throws Error:
/// transport if MPI is not initialised, is finalised, or fails, or if not all ranks come within `patience` (the
/// sentence names the missing ranks, and says that MPI cannot be finalised any more); unsupported on a thread that may
/// not call MPI; invalid_argument for MPI_COMM_NULL and intercommunicators.
///
/// MPI must outlive the bootstrap and the transports that it makes. MPI's thread level decides two things.
///
/// Which threads may call it: with MULTIPLE any thread; with SERIALIZED any thread while the program keeps all others
/// out of MPI; with FUNNELED and SINGLE only the thread that initialised MPI, and others get an Error (unsupported).
///
/// Whether MPI may carry data: only with MULTIPLE on every rank, because the engine calls the transport from several
/// threads. Below that Kolo does not call MPI once the start is over (`close`).
std::unique_ptr<bootstrap::Bootstrap> borrow(MPI_Comm theirs, base::Duration patience);

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
