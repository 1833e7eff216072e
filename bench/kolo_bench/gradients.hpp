// SPDX-License-Identifier: Apache-2.0
//
// The gradients of one rank, and the ways in which a step reduces them: by Kolo in backward order (the last layer
// first) with all handles open at once; by MPI tensor by tensor, or packed into one buffer, as a program without Kolo
// would. All float32, summed or averaged. (MPI has no average: its user divides, in the pass that unpacks or in one
// more.)
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>

#include "data.hpp"
#include "flags.hpp"
#include "peer.hpp"

namespace kolo_bench {

/// One thread.
class Gradients {
 public:
  /// In an arena: collective, and Kolo must be there. On the device, unless that is null.
  Gradients(const Flags& flags, int rank, int ranks, std::shared_ptr<Device> device = nullptr);

  void fill();
  /// Elements that are not the exact result.
  [[nodiscard]] std::int64_t count_wrong();
  [[nodiscard]] std::size_t size() const { return buffers_.size(); }
  /// In backward order: 0 is the last layer's.
  [[nodiscard]] Buffer& backward(std::size_t i) { return buffers_[buffers_.size() - 1 - i]; }
  [[nodiscard]] std::string name(const std::string& prefix, std::size_t i) const;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] int ranks() const { return ranks_; }
  /// For the handles of a step. On a device the host may still be a step ahead: then it waits for the step before, as
  /// the names are the same.
  [[nodiscard]] std::vector<kolo::Handle>& begin_step();
  /// Waits for them, or makes the device's stream wait.
  void finish_step();
  [[nodiscard]] kolo::ReduceOp op() const { return op_; }
  [[nodiscard]] kolo::AllreduceOptions options() const { return kolo::AllreduceOptions{}.with_op(op_); }

 private:
  const kolo::ReduceOp op_;
  const int rank_;
  const int ranks_;
  const std::shared_ptr<Device> device_;
  std::vector<Buffer> buffers_;
  std::vector<kolo::Handle> handles_;
};

/// What steps took of the calling thread, in microseconds: until all gradients were submitted, and until it could go on
/// with what follows the step.
struct HostTimes {
  std::vector<double> submitted;
  std::vector<double> step;
};

/// One step by Kolo. Notes its times where asked.
std::function<void()> step_by_kolo(const std::shared_ptr<Gradients>& gradients, Submission submission,
                                   const std::shared_ptr<HostTimes>& times = nullptr);
/// One step by MPI.
std::function<void()> step_by_mpi(const std::shared_ptr<Gradients>& gradients, Baseline baseline);
/// One step by NCCL: a call a tensor, each by itself or all as one group.
std::function<void()> step_by_nccl(const std::shared_ptr<Gradients>& gradients, Baseline baseline,
                                   const std::shared_ptr<Peer>& nccl);

}  // namespace kolo_bench
