// SPDX-License-Identifier: Apache-2.0
//
// Kolo under Gloo's name, for programs that ask for Gloo: calls with tensors of the CPU go to Kolo, all others to a
// Gloo that is made at the first such call. Which of the two a call goes to depends on its tensors' device alone, which
// the ranks know alike.
#pragma once

#include "c10d/versions.hpp"

#ifdef KOLO_C10D_CAN_STAND_IN
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "c10d/process_group.hpp"

namespace kolo::c10d {

/// Begins as PyTorch's ProcessGroupGloo does, and must: the logger of DistributedDataParallel takes every backend of
/// type GLOO for one, without a look, and reads the number of its threads. PyTorch's wheel lacks headers that the
/// class's own includes, so that this cannot be derived from it.
class LikeGloo : public Backend {
 public:
  struct GlooOptions : Options {
    explicit GlooOptions(std::chrono::milliseconds timeout) : Options("gloo", timeout) {}
    /// Overrides what newer versions of PyTorch have: a group that is split off changes its copy.
    virtual c10::intrusive_ptr<Options> clone() const { return c10::make_intrusive<GlooOptions>(*this); }
    std::vector<std::shared_ptr<void>> devices;
    int threads{2};
  };

  LikeGloo(int rank, int size, std::chrono::milliseconds timeout)
      : Backend(rank, size), options_(c10::make_intrusive<GlooOptions>(timeout)) {}

 protected:
  std::shared_ptr<void> store_;
  const c10::intrusive_ptr<GlooOptions> options_;
};

class GlooStandIn final : public LikeGloo {
 public:
  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using MakeGloo = std::function<c10::intrusive_ptr<Backend>()>;

  /// `make_gloo` is called once at most, on all ranks: it is collective.
  GlooStandIn(c10::intrusive_ptr<ProcessGroupKolo> kolo, std::chrono::milliseconds timeout, MakeGloo make_gloo);

  [[nodiscard]] const c10::intrusive_ptr<ProcessGroupKolo>& kolo() const noexcept { return kolo_; }
  /// Whether a call has needed it.
  [[nodiscard]] bool has_gloo() const;

  const std::string getBackendName() const override { return "gloo"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }

  WorkPtr broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override {
    return of(tensors).broadcast(tensors, options);
  }
  WorkPtr allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override {
    return of(tensors).allreduce(tensors, options);
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) override {
    return of(tensors).allreduce_sparse(tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override {
    return of(tensors).allreduce_coalesced(tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override {
    return of(tensors).reduce(tensors, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override {
    return of(inputs).allgather(outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& options) override {
    return of(input)._allgather_base(output, input, options);
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const ::c10d::AllgatherOptions& options) override {
    return of(inputs).allgather_coalesced(outputs, inputs, options);
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::AllgatherOptions& options) override {
    return of(inputs).allgather_into_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override {
    return of(inputs).gather(outputs, inputs, options);
  }
#ifdef KOLO_C10D_HAS_GATHER_SINGLE
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const ::c10d::GatherOptions& options) override {
    return of(input).gather_single(output, input, options);
  }
#endif
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const ::c10d::ScatterOptions& options) override {
    return of(outputs).scatter(outputs, inputs, options);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const ::c10d::ReduceScatterOptions& options) override {
    return of(outputs).reduce_scatter(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const ::c10d::ReduceScatterOptions& options) override {
    return of(input)._reduce_scatter_base(output, input, options);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const ::c10d::ReduceScatterOptions& options) override {
    return of(inputs).reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const ::c10d::AllToAllOptions& options) override {
    return of(input).alltoall_base(output, input, output_splits, input_splits, options);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override {
    return of(inputs).alltoall(outputs, inputs, options);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override { return of(tensors).send(tensors, to, tag); }
  WorkPtr recv(Tensors& tensors, int from, int tag) override { return of(tensors).recv(tensors, from, tag); }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override { return of(tensors).recvAnysource(tensors, tag); }
  WorkPtr barrier(const ::c10d::BarrierOptions& options) override { return kolo_->barrier(options); }
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override {
    kolo_->monitoredBarrier(options, wait_all_ranks);
  }

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return kolo_->getSequenceNumberForGroup(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void abort() override;
  void shutdown() override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;

 private:
  /// Whose a call with this tensor is.
  Backend& of(const at::Tensor& tensor);
  Backend& of(const Tensors& tensors) { return tensors.empty() ? *kolo_ : of(tensors.front()); }
  template <class Tell>
  void tell_both(const Tell& tell);

  const c10::intrusive_ptr<ProcessGroupKolo> kolo_;
  mutable std::mutex mutex_;
  MakeGloo make_gloo_;                // under the mutex; empty once it is made
  c10::intrusive_ptr<Backend> gloo_;  // under the mutex
};

}  // namespace kolo::c10d
#endif
