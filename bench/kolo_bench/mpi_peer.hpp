// SPDX-License-Identifier: Apache-2.0
//
// The peer: the same work by MPI. Counts are MPI's ints; throws BadFlags for what MPI cannot do.
#pragma once

#include <cstdint>

#include <kolo/types.hpp>

#include "data.hpp"

namespace kolo_bench {

/// Throws BadFlags when MPI has no such type or operation, or counts in ints cannot reach so far.
void check_mpi_can(kolo::DType dtype, kolo::ReduceOp op, std::int64_t count);

void mpi_allreduce_in_place(Buffer& inout, kolo::ReduceOp op, int ranks);
void mpi_allreduce(Buffer& in, Buffer& out, kolo::ReduceOp op, int ranks);
void mpi_broadcast(Buffer& inout, int root);
void mpi_allgather(Buffer& in, Buffer& out);
void mpi_alltoall(Buffer& in, Buffer& out, int ranks);
/// MPI_Reduce_scatter_block of equal parts; in place the result is the first part of `inout`.
void mpi_reduce_scatter_in_place(Buffer& inout, kolo::ReduceOp op, int ranks);
void mpi_reduce_scatter(Buffer& in, Buffer& out, kolo::ReduceOp op, int ranks);
void mpi_barrier();

}  // namespace kolo_bench
