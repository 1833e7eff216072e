/* SPDX-License-Identifier: Apache-2.0 */

/// @file
/// For programs in C that have MPI already. Not part of kolo/kolo.h: it includes MPI's own header. Present when the
/// library was built with MPI; a program that was compiled with another MPI cannot use it.
///
///     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
///     kolo_context* context = NULL;
///     if (kolo_init_mpi(my_communicator, NULL, &context) != KOLO_OK) fprintf(stderr, "%s\n", kolo_last_error());
///     ...
///     kolo_shutdown(context);
///     MPI_Finalize();
#ifndef KOLO_KOLO_MPI_H
#define KOLO_KOLO_MPI_H

#include <mpi.h>

#include <kolo/kolo.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a context whose world is the ranks of the communicator, in its order. Collective over the communicator, which
/// Kolo duplicates: the program may use or free its own. The context is always one beside the process's own; shut it
/// down before MPI_Finalize. Of the options only the settings, the log and the devices count: `store` must be NULL, and
/// `separate` says nothing. Thread levels and errors are those of kolo::mpi::bootstrap (kolo/mpi.hpp):
/// `KOLO_TRANSPORT` if MPI is not initialised or fails, or a rank does not come within KOLO_CONNECT_TIMEOUT_S;
/// `KOLO_UNSUPPORTED` on a thread that may not call MPI; `KOLO_INVALID_ARGUMENT` for MPI_COMM_NULL and
/// intercommunicators.
KOLO_API kolo_status kolo_init_mpi(MPI_Comm communicator, const kolo_init_options* options, kolo_context** context);

#ifdef __cplusplus
}
#endif

#endif
