// SPDX-License-Identifier: Apache-2.0
//
// MPI as the sources of mpi/ see it: they are compiled once for each ABI, in a namespace of that name, against one of
// these headers instead of an MPI's own. A header has the few types and constants that Kolo uses.
// tests/mpi/abi_test.cpp compares them with each <mpi.h> that is there.
#pragma once

#if KOLO_MPI_ABI == 1
#define KOLO_MPI_NAMESPACE openmpi
#include "mpi/abi/openmpi.hpp"
#elif KOLO_MPI_ABI == 2
#define KOLO_MPI_NAMESPACE mpich
#include "mpi/abi/mpich.hpp"
#elif KOLO_MPI_ABI == 3
#define KOLO_MPI_NAMESPACE standard
#include "mpi/abi/standard.hpp"
#else
#error "KOLO_MPI_ABI is 1, 2 or 3 (mpi/CMakeLists.txt)"
#endif
