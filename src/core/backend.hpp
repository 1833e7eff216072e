// SPDX-License-Identifier: Apache-2.0
//
// What runs a batch. The engine hands over jobs in log order and asks for progress; the backend moves the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <kolo/error.hpp>

#include "core/signature.hpp"

namespace kolo::core {

/// One tensor's part of a run. `input == output` is in place; otherwise they are disjoint.
struct Piece {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t elements = 0;
};

/// A homogeneous stretch of a batch: one collective over the concatenation of its pieces, the same number of elements
/// on every rank (allgather excepted).
struct Run {
  CollectiveKind kind = CollectiveKind::allreduce;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int64_t divisor = 1;  ///< the number of ranks for an average, else 1
  int root = 0;              ///< for a broadcast, as a rank of the world
  std::vector<Piece> pieces;
  std::int64_t elements = 0;  ///< of all pieces
  /// Allgather: called once, by the driver, when every rank's contribution is known (bytes by rank of the set); returns
  /// the output, which has room for their sum, or throws (std::bad_alloc becomes the handle's error and the bytes are
  /// discarded).
  std::function<std::byte*(const std::vector<std::int64_t>& bytes)> allocate;
};

/// A batch as a backend sees it: runs one after another. Owned by the engine; must stay alive and unmoved from `start`
/// until it is reported finished or `abort` has returned.
struct Job {
  SetId set = kGlobalSet;
  std::vector<Run> runs;
  void* cookie = nullptr;  ///< the engine's own
  Status status;           ///< set by the backend before the job is reported finished
};

enum class Progress : std::uint8_t {
  idle,            ///< nothing to do: no job is open
  waiting,         ///< jobs are open, and all of them wait for somebody else
  advanced,        ///< something moved
  another_thread,  ///< jobs are open, and only a thread that may call MPI can move them (InterNode::usable_here)
};

/// Calls come from the engine's driver, one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Queues a job. Jobs of one set run in the order they were started, on every rank the same; several may overlap.
  virtual void start(Job& job) = 0;
  /// Moves whatever can move without blocking; appends jobs that have finished, in order. `in_call`: the calling thread
  /// is inside a call of the library (not the background thread). Throws `Error` (transport): a fault of the world.
  virtual Progress progress(bool in_call, std::vector<Job*>& finished) = 0;
  /// Forgets all jobs. After it returns nothing touches a caller's memory any more. Only `describe` and destruction may
  /// follow.
  virtual void abort() noexcept = 0;
};

}  // namespace kolo::core
