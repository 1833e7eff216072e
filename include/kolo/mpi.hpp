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
/// program's to finalise, after the context has gone. Any thread level works. Below MPI_THREAD_MULTIPLE data moves
/// between nodes only while a thread that may call MPI is inside a call of Kolo's, polls (`Handle::done`) and
/// submissions included; such a thread moves all contexts of the process, and Kolo never calls MPI on two threads at
/// once. With MPI_THREAD_SINGLE and FUNNELED it is the thread that initialised MPI: it must make the contexts, and a
/// wait on another thread for a collective between nodes is refused at the call (`Error` unsupported). Throws `Error`:
/// transport when MPI is not initialised, is finalised or fails, or when not all ranks have called this within
/// `KOLO_CONNECT_TIMEOUT_S` (the sentence names those who have not; what is open then stays open, so MPI must not be
/// finalised); unsupported from a thread that may not call MPI; invalid_argument for MPI_COMM_NULL and
/// intercommunicators.
[[nodiscard]] KOLO_API Bootstrap bootstrap(MPI_Comm communicator);

}  // namespace kolo::mpi

#endif  // KOLO_MPI_HPP
