// SPDX-License-Identifier: Apache-2.0
//
// The ABI that MPICH (libmpi.so.12; Debian: libmpich.so.12), Intel MPI, MVAPICH and Cray's MPI share: handles are ints.
#pragma once

namespace kolo::mpi::mpich {

using MPI_Comm = int;
using MPI_Request = int;
using MPI_Datatype = int;
using MPI_Errhandler = int;
using MPI_Count = long long;
struct MPI_Status {
  int count_low;
  int count_high_and_cancelled;
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
};

inline MPI_Status* const MPI_STATUS_IGNORE = reinterpret_cast<MPI_Status*>(1);
inline constexpr int MPI_ANY_SOURCE = -2;
inline constexpr int MPI_ANY_TAG = -1;
inline constexpr int MPI_TAG_UB = 0x64400001;
inline constexpr int MPI_ERR_IN_STATUS = 17;
inline constexpr int MPI_ERR_PENDING = 18;
inline constexpr int MPI_THREAD_SINGLE = 0;
inline constexpr int MPI_THREAD_FUNNELED = 1;
inline constexpr int MPI_THREAD_SERIALIZED = 2;
inline constexpr int MPI_THREAD_MULTIPLE = 3;
inline constexpr int MPI_MAX_ERROR_STRING = 512;
inline constexpr int MPI_MAX_LIBRARY_VERSION_STRING = 8192;
inline constexpr MPI_Comm MPI_COMM_WORLD = 0x44000000;
inline constexpr MPI_Comm MPI_COMM_NULL = 0x04000000;
inline constexpr MPI_Request MPI_REQUEST_NULL = 0x2c000000;
inline constexpr MPI_Datatype MPI_BYTE = 0x4c00010d;
inline constexpr MPI_Datatype MPI_CHAR = 0x4c000101;
inline constexpr MPI_Errhandler MPI_ERRORS_RETURN = 0x54000001;

template <class Visit>
void for_each_object(Visit&& /*visit*/) {}  // its constants are numbers

}  // namespace kolo::mpi::mpich
