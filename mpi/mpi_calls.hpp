// SPDX-License-Identifier: Apache-2.0
//
// The calls of MPI that Kolo makes, each under its own name in this ABI's namespace. They go through a table that
// `mpi::open` (library/opening.hpp) fills from the library: Kolo links no MPI.
#pragma once

#include "mpi/abi/mpi.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {

#define KOLO_MPI_CALLS(CALL)                                                                                           \
  CALL(Initialized, int*)                                                                                              \
  CALL(Finalized, int*)                                                                                                \
  CALL(Query_thread, int*)                                                                                             \
  CALL(Is_thread_main, int*)                                                                                           \
  CALL(Init_thread, int*, char***, int, int*)                                                                          \
  CALL(Finalize)                                                                                                       \
  CALL(Ibarrier, MPI_Comm, MPI_Request*)                                                                               \
  CALL(Get_library_version, char*, int*)                                                                               \
  CALL(Error_string, int, char*, int*)                                                                                 \
  CALL(Comm_test_inter, MPI_Comm, int*)                                                                                \
  CALL(Comm_set_errhandler, MPI_Comm, MPI_Errhandler)                                                                  \
  CALL(Comm_rank, MPI_Comm, int*)                                                                                      \
  CALL(Comm_size, MPI_Comm, int*)                                                                                      \
  CALL(Comm_idup, MPI_Comm, MPI_Comm*, MPI_Request*)                                                                   \
  CALL(Comm_free, MPI_Comm*)                                                                                           \
  CALL(Comm_get_attr, MPI_Comm, int, void*, int*)                                                                      \
  CALL(Isend, const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                                        \
  CALL(Irecv, void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*)                                              \
  CALL(Iprobe, int, int, MPI_Comm, int*, MPI_Status*)                                                                  \
  CALL(Test, MPI_Request*, int*, MPI_Status*)                                                                          \
  CALL(Testsome, int, MPI_Request*, int*, int*, MPI_Status*)                                                           \
  CALL(Cancel, MPI_Request*)                                                                                           \
  CALL(Get_count, const MPI_Status*, MPI_Datatype, int*)                                                               \
  CALL(Get_elements_x, const MPI_Status*, MPI_Datatype, MPI_Count*)                                                    \
  CALL(Igather, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*)                 \
  CALL(Iscatter, const void*, int, MPI_Datatype, void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*)

inline constexpr int MPI_SUCCESS = 0;

#define KOLO_MPI_CALL(name, ...) inline int (*MPI_##name)(__VA_ARGS__) = nullptr;
KOLO_MPI_CALLS(KOLO_MPI_CALL)
#undef KOLO_MPI_CALL

/// Calls `visit` with each call's name and its place in the table.
template <class Visit>
void for_each_call(Visit&& visit) {
#define KOLO_MPI_CALL(name, ...) visit("MPI_" #name, MPI_##name);
  KOLO_MPI_CALLS(KOLO_MPI_CALL)
#undef KOLO_MPI_CALL
}

#undef KOLO_MPI_CALLS

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
