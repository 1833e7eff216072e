// SPDX-License-Identifier: Apache-2.0
//
// Open MPI's own ABI, that of releases 3 to 5 (libmpi.so.40): a handle is a pointer, and a constant is the address of
// an object of the library.
#pragma once

#include <cstddef>

struct ompi_communicator_t;

namespace kolo::mpi::openmpi {

using MPI_Comm = ompi_communicator_t*;
using MPI_Request = struct Request*;
using MPI_Datatype = struct Datatype*;
using MPI_Errhandler = struct Errhandler*;
using MPI_Count = long long;
struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int cancelled;
  std::size_t bytes;
};

inline MPI_Status* const MPI_STATUS_IGNORE = nullptr;
inline constexpr int MPI_ANY_SOURCE = -1;
inline constexpr int MPI_ANY_TAG = -1;
inline constexpr int MPI_TAG_UB = 0;
inline constexpr int MPI_ERR_IN_STATUS = 18;
inline constexpr int MPI_ERR_PENDING = 19;
inline constexpr int MPI_THREAD_SINGLE = 0;
inline constexpr int MPI_THREAD_FUNNELED = 1;
inline constexpr int MPI_THREAD_SERIALIZED = 2;
inline constexpr int MPI_THREAD_MULTIPLE = 3;
inline constexpr int MPI_MAX_ERROR_STRING = 256;
inline constexpr int MPI_MAX_LIBRARY_VERSION_STRING = 256;

// The addresses, once the library is open.
inline MPI_Comm MPI_COMM_WORLD = nullptr;
inline MPI_Comm MPI_COMM_NULL = nullptr;
inline MPI_Request MPI_REQUEST_NULL = nullptr;
inline MPI_Datatype MPI_BYTE = nullptr;
inline MPI_Datatype MPI_CHAR = nullptr;
inline MPI_Errhandler MPI_ERRORS_RETURN = nullptr;

/// Calls `visit` with each object's name and the constant that points to it.
template <class Visit>
void for_each_object(Visit&& visit) {
  visit("ompi_mpi_comm_world", MPI_COMM_WORLD);
  visit("ompi_mpi_comm_null", MPI_COMM_NULL);
  visit("ompi_request_null", MPI_REQUEST_NULL);
  visit("ompi_mpi_byte", MPI_BYTE);
  visit("ompi_mpi_char", MPI_CHAR);
  visit("ompi_mpi_errors_return", MPI_ERRORS_RETURN);
}

}  // namespace kolo::mpi::openmpi
