// SPDX-License-Identifier: Apache-2.0

/// @file
/// For programs that have MPI already, of whichever kind: Open MPI, MPICH and its relatives (Intel MPI), or one with
/// the ABI of the MPI standard. Needs no <mpi.h>: the program includes its own.
#ifndef KOLO_MPI_HPP
#define KOLO_MPI_HPP

#include <kolo/context.hpp>
#include <kolo/export.hpp>

struct ompi_communicator_t;
struct MPI_ABI_Comm;

namespace kolo::mpi {

/// Makes the ranks of `communicator`, in its order, the world of a `Context`:
///
///     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
///     kolo::Context context(kolo::mpi::bootstrap(my_communicator));
///
/// Collective over the communicator. Kolo duplicates it, so the program may use or free its own. The program finalises
/// MPI, after the context has been destroyed. Thread levels: plain MPI_Init will do on one machine. Below
/// MPI_THREAD_MULTIPLE data between nodes goes by UCX; without UCX making the context fails (`Error` unsupported, on
/// every rank). This call and the context's constructor call MPI on the calling thread. With MPI_THREAD_SINGLE and
/// FUNNELED that must be the thread that initialised MPI (else `Error` unsupported); with MPI_THREAD_SERIALIZED no
/// other thread may be in MPI meanwhile. Below MPI_THREAD_MULTIPLE Kolo does not call MPI once the context is made.
/// Throws `Error`: transport if MPI is not initialised, is finalised or fails, or if not all ranks have called this
/// within `KOLO_CONNECT_TIMEOUT_S` (the sentence names the missing ranks; MPI calls are then still open, so MPI must
/// not be finalised); unsupported on a thread that may not call MPI; invalid_argument for MPI_COMM_NULL,
/// intercommunicators, and a communicator of another MPI than that of the process.
///
/// MPI_Comm is one of these types: Open MPI's,
[[nodiscard]] KOLO_API Bootstrap bootstrap(ompi_communicator_t* communicator);
/// that of MPICH and its relatives,
[[nodiscard]] KOLO_API Bootstrap bootstrap(int communicator);
/// or that of the standard's ABI.
[[nodiscard]] KOLO_API Bootstrap bootstrap(MPI_ABI_Comm* communicator);

}  // namespace kolo::mpi

#endif  // KOLO_MPI_HPP
