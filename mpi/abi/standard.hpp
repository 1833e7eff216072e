// SPDX-License-Identifier: Apache-2.0
//
// The standard's own ABI, 1.0, which came with MPI 5 (libmpi_abi.so.1 of MPICH 5, Intel MPI 2021.18, Open MPI 6): a
// handle is a pointer, and a constant is a small number.
#pragma once

struct MPI_ABI_Comm;

namespace kolo::mpi::standard {

using MPI_Comm = MPI_ABI_Comm*;
using MPI_Request = struct Request*;
using MPI_Datatype = struct Datatype*;
using MPI_Errhandler = struct Errhandler*;
using MPI_Count = long;
struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int internal[5];
};

inline MPI_Status* const MPI_STATUS_IGNORE = nullptr;
inline constexpr int MPI_ANY_SOURCE = -1;
inline constexpr int MPI_ANY_TAG = -2;
inline constexpr int MPI_TAG_UB = 501;
inline constexpr int MPI_ERR_IN_STATUS = 19;
inline constexpr int MPI_ERR_PENDING = 18;
inline constexpr int MPI_THREAD_SINGLE = 0;
inline constexpr int MPI_THREAD_FUNNELED = 1024;
inline constexpr int MPI_THREAD_SERIALIZED = 2048;
inline constexpr int MPI_THREAD_MULTIPLE = 4096;
inline constexpr int MPI_MAX_ERROR_STRING = 512;
inline constexpr int MPI_MAX_LIBRARY_VERSION_STRING = 8192;
inline const auto MPI_COMM_WORLD = reinterpret_cast<MPI_Comm>(0x101);
inline const auto MPI_COMM_NULL = reinterpret_cast<MPI_Comm>(0x100);
inline const auto MPI_REQUEST_NULL = reinterpret_cast<MPI_Request>(0x180);
inline const auto MPI_BYTE = reinterpret_cast<MPI_Datatype>(0x247);
inline const auto MPI_CHAR = reinterpret_cast<MPI_Datatype>(0x243);
inline const auto MPI_ERRORS_RETURN = reinterpret_cast<MPI_Errhandler>(0x143);

template <class Visit>
void for_each_object(Visit&& /*visit*/) {}  // its constants are numbers

}  // namespace kolo::mpi::standard
