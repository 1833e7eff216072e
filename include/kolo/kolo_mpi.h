/* SPDX-License-Identifier: Apache-2.0 */

/// @file
/// For programs in C that have MPI already, of whichever kind: Open MPI, MPICH and its relatives (Intel MPI), or one
/// with the ABI of the MPI standard. Needs no <mpi.h>: the program includes its own.
///
///     MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
///     kolo_context* context = NULL;
///     if (kolo_init_mpi(my_communicator, NULL, &context) != KOLO_OK) fprintf(stderr, "%s\n", kolo_last_error());
///     ...
///     kolo_shutdown(context);
///     MPI_Finalize();
#ifndef KOLO_KOLO_MPI_H
#define KOLO_KOLO_MPI_H

#include <kolo/kolo.h>

struct ompi_communicator_t;
struct MPI_ABI_Comm;

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a context whose world is the ranks of the communicator, in its order. Collective over the communicator, which
/// Kolo duplicates: the program may use or free its own. The context is always one beside the process's own; shut it
/// down before MPI_Finalize. Of the options only the settings, the log and the devices count: `store` must be NULL, and
/// `separate` says nothing. Thread levels and errors are those of kolo::mpi::bootstrap (kolo/mpi.hpp):
/// `KOLO_TRANSPORT` if MPI is not initialised or fails, or a rank does not come within KOLO_CONNECT_TIMEOUT_S;
/// `KOLO_UNSUPPORTED` on a thread that may not call MPI; `KOLO_INVALID_ARGUMENT` for MPI_COMM_NULL,
/// intercommunicators, and a communicator of another MPI than that of the process.
///
/// `kolo_init_mpi` takes any MPI_Comm, and calls the function for its type: Open MPI's,
KOLO_API kolo_status kolo_init_openmpi(struct ompi_communicator_t* communicator, const kolo_init_options* options,
                                       kolo_context** context);
/// that of MPICH and its relatives,
KOLO_API kolo_status kolo_init_mpich(int communicator, const kolo_init_options* options, kolo_context** context);
/// or that of the standard's ABI.
KOLO_API kolo_status kolo_init_mpi_abi(struct MPI_ABI_Comm* communicator, const kolo_init_options* options,
                                       kolo_context** context);

#ifdef __cplusplus
}

inline kolo_status kolo_init_mpi(ompi_communicator_t* communicator, const kolo_init_options* options,
                                 kolo_context** context) {
  return kolo_init_openmpi(communicator, options, context);
}
inline kolo_status kolo_init_mpi(int communicator, const kolo_init_options* options, kolo_context** context) {
  return kolo_init_mpich(communicator, options, context);
}
inline kolo_status kolo_init_mpi(MPI_ABI_Comm* communicator, const kolo_init_options* options, kolo_context** context) {
  return kolo_init_mpi_abi(communicator, options, context);
}
#else
#define kolo_init_mpi(communicator, options, context)                                                                  \
  __extension__ _Generic((communicator),                                     \
      struct ompi_communicator_t *: kolo_init_openmpi,                       \
      int: kolo_init_mpich,                                                  \
      struct MPI_ABI_Comm *: kolo_init_mpi_abi)(communicator, options, context)
#endif

#endif
