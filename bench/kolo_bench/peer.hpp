// SPDX-License-Identifier: Apache-2.0
//
// Who does the same work beside Kolo: MPI on the CPU, NCCL on a GPU.
#pragma once

#include <cstdint>
#include <string>

#include <kolo/types.hpp>

#include "data.hpp"

namespace kolo_bench {

/// One thread. Where `in` and `out` are the same buffer, in place.
class Peer {
 public:
  virtual ~Peer() = default;
  /// "mpi", "nccl".
  [[nodiscard]] virtual std::string name() const = 0;
  /// Throws BadFlags when it has no such type or operation, or counts in ints that do not reach so far.
  virtual void check_can(kolo::DType dtype, kolo::ReduceOp op, std::int64_t count) const = 0;
  /// Whether what it computes from our data has no rounding but the one that data.hpp knows.
  [[nodiscard]] virtual bool is_exact(kolo::ReduceOp op) const = 0;
  virtual void allreduce(Buffer& in, Buffer& out, kolo::ReduceOp op) = 0;
  virtual void reduce(Buffer& in, Buffer& out, kolo::ReduceOp op, int root) = 0;
  virtual void broadcast(Buffer& in, Buffer& out, int root) = 0;
  virtual void allgather(Buffer& in, Buffer& out) = 0;
  /// Equal parts, by the calls whose parts may differ.
  virtual void gather(Buffer& in, Buffer& out, int root) = 0;
  virtual void scatter(Buffer& in, Buffer& out, int root) = 0;
  virtual void alltoall(Buffer& in, Buffer& out) = 0;
  /// In place the result lies where `in_place_at` says.
  virtual void reduce_scatter(Buffer& in, Buffer& out, kolo::ReduceOp op) = 0;
  /// In elements, of parts of so many.
  [[nodiscard]] virtual std::int64_t in_place_at(std::int64_t part) const = 0;
  /// Throws BadFlags where there is none.
  virtual void barrier() = 0;
  /// Sends to one rank and receives from another.
  virtual void exchange(Buffer& in, Buffer& out, int to, int from) = 0;
  /// Sends there and receives from there, or the reverse.
  virtual void bounce(Buffer& in, Buffer& out, int other, bool sends_first) = 0;
  /// What is between these two runs as one.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
};

}  // namespace kolo_bench
