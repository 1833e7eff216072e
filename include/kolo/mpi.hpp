// SPDX-License-Identifier: Apache-2.0

/// @file
/// For programs that have MPI already. Not part of kolo/kolo.hpp: it includes MPI's own header. Present when the
/// library was built with MPI.
#ifndef KOLO_MPI_HPP
#define KOLO_MPI_HPP

#include <mpi.h>

#include <kolo/context.hpp>
#include <kolo/export.hpp>

namespace kolo::mpi {

/// The ranks of `communicator` as the world of a `Context`, in its order:
///
///     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
///     kolo::Context context(kolo::mpi::bootstrap(my_communicator));
///
/// Collective over the communicator, which is duplicated: the program may use or free its own meanwhile. MPI stays the
/// program's to finalise, after the context has gone. Any thread level works. Below MPI_THREAD_MULTIPLE UCX must carry
/// data between nodes, or making the context fails (`Error` unsupported, on every rank). This call and the making of
/// the context call MPI on the calling thread: with MPI_THREAD_SINGLE and FUNNELED it must be the thread that
/// initialised MPI (else `Error` unsupported), and with MPI_THREAD_SERIALIZED no other thread may be in MPI meanwhile.
/// Below MPI_THREAD_MULTIPLE nothing calls MPI once the context is made. Throws `Error`: transport when MPI is not
/// initialised, is finalised or fails, or when not all ranks have called this within `KOLO_CONNECT_TIMEOUT_S` (the
/// sentence names those who have not; what is open then stays open, so MPI must not be finalised); unsupported from a
/// thread that may not call MPI; invalid_argument for MPI_COMM_NULL and intercommunicators.
[[nodiscard]] KOLO_API Bootstrap bootstrap(MPI_Comm communicator);

}  // namespace kolo::mpi

#endif  // KOLO_MPI_HPP
