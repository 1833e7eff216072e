// SPDX-License-Identifier: Apache-2.0
//
// The peer: the same work by MPI. Counts are MPI's ints; throws BadFlags for what MPI cannot do.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>

#include <kolo/types.hpp>

#include "data.hpp"
#include "peer.hpp"

namespace kolo_bench {

/// All of the below as a `Peer`, in a communicator of its own for each `split` neighbours of `ranks`; 0: of all. There
/// is no group (of NCCL's kind).
std::shared_ptr<Peer> make_mpi_peer(int rank, int ranks, int split);

/// Throws BadFlags when MPI has no such type or operation, or counts in ints cannot reach so far.
void check_mpi_can(kolo::DType dtype, kolo::ReduceOp op, std::int64_t count);

void mpi_allreduce_in_place(Buffer& inout, kolo::ReduceOp op, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_allreduce(Buffer& in, Buffer& out, kolo::ReduceOp op, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_reduce(Buffer& in, Buffer& out, kolo::ReduceOp op, int root, int rank, int ranks,
                MPI_Comm comm = MPI_COMM_WORLD);
void mpi_broadcast(Buffer& inout, int root, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_allgather(Buffer& in, Buffer& out, MPI_Comm comm = MPI_COMM_WORLD);
/// MPI_Gatherv and MPI_Scatterv of equal parts.
void mpi_gather(Buffer& in, Buffer& out, int root, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_scatter(Buffer& in, Buffer& out, int root, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_alltoall(Buffer& in, Buffer& out, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
/// MPI_Reduce_scatter_block of equal parts; in place the result is the first part of `inout`.
void mpi_reduce_scatter_in_place(Buffer& inout, kolo::ReduceOp op, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_reduce_scatter(Buffer& in, Buffer& out, kolo::ReduceOp op, int ranks, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_barrier(MPI_Comm comm = MPI_COMM_WORLD);
void mpi_exchange(Buffer& in, Buffer& out, int to, int from, MPI_Comm comm = MPI_COMM_WORLD);
void mpi_bounce(Buffer& in, Buffer& out, int other, bool sends_first, MPI_Comm comm = MPI_COMM_WORLD);
/// Every rank sends a byte to every rank, itself included, and receives only when all have been sent.
void mpi_send_unexpected();

/// All-reduces in place that are under way at once. One thread.
class MpiRequests {
 public:
  MpiRequests();
  ~MpiRequests();
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;

  /// The buffer must outlive `wait_all`. An average is divided there.
  void start_allreduce(Buffer& inout, kolo::ReduceOp op);
  void wait_all(int ranks);

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace kolo_bench
