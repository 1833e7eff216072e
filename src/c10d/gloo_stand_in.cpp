// SPDX-License-Identifier: Apache-2.0
#include "c10d/gloo_stand_in.hpp"

#ifdef KOLO_C10D_CAN_STAND_IN
#include <utility>

#include "c10d/errors.hpp"

namespace kolo::c10d {

GlooStandIn::GlooStandIn(c10::intrusive_ptr<ProcessGroupKolo> kolo, std::chrono::milliseconds timeout,
                         MakeGloo make_gloo)
    : LikeGloo(kolo->getRank(), kolo->getSize(), timeout), kolo_(std::move(kolo)), make_gloo_(std::move(make_gloo)) {}

bool GlooStandIn::has_gloo() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<bool>(gloo_);
}

Backend& GlooStandIn::of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return *kolo_;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!gloo_) {
    if (!make_gloo_) {
      raise("gloo", ErrorCode::unsupported,
            "a group that split_group has made under KOLO_AS_GLOO takes tensors of the CPU alone, and this one is on " +
                tensor.device().str() + ": make the group by new_group");
    }
    gloo_ = make_gloo_();
    make_gloo_ = nullptr;
  }
  return *gloo_;
}

GlooStandIn::WorkPtr GlooStandIn::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  return of(tensors).broadcast(tensors, options);
}

GlooStandIn::WorkPtr GlooStandIn::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  return of(tensors).allreduce(tensors, options);
}

GlooStandIn::WorkPtr GlooStandIn::allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  return of(tensors).allreduce_sparse(tensors, options);
}

GlooStandIn::WorkPtr GlooStandIn::allreduce_coalesced(Tensors& tensors,
                                                      const ::c10d::AllreduceCoalescedOptions& options) {
  return of(tensors).allreduce_coalesced(tensors, options);
}

GlooStandIn::WorkPtr GlooStandIn::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  return of(tensors).reduce(tensors, options);
}

GlooStandIn::WorkPtr GlooStandIn::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const ::c10d::AllgatherOptions& options) {
  return of(inputs).allgather(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const ::c10d::AllgatherOptions& options) {
  return of(input)._allgather_base(output, input, options);
}

GlooStandIn::WorkPtr GlooStandIn::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const ::c10d::AllgatherOptions& options) {
  return of(inputs).allgather_coalesced(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const ::c10d::AllgatherOptions& options) {
  return of(inputs).allgather_into_tensor_coalesced(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const ::c10d::GatherOptions& options) {
  return of(inputs).gather(outputs, inputs, options);
}

#ifdef KOLO_C10D_HAS_GATHER_SINGLE
GlooStandIn::WorkPtr GlooStandIn::gather_single(at::Tensor& output, at::Tensor& input,
                                                const ::c10d::GatherOptions& options) {
  return of(input).gather_single(output, input, options);
}
#endif

GlooStandIn::WorkPtr GlooStandIn::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const ::c10d::ScatterOptions& options) {
  return of(outputs).scatter(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                 const ::c10d::ReduceScatterOptions& options) {
  return of(outputs).reduce_scatter(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const ::c10d::ReduceScatterOptions& options) {
  return of(input)._reduce_scatter_base(output, input, options);
}

GlooStandIn::WorkPtr GlooStandIn::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const ::c10d::ReduceScatterOptions& options) {
  return of(inputs).reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<std::int64_t>& output_splits,
                                                std::vector<std::int64_t>& input_splits,
                                                const ::c10d::AllToAllOptions& options) {
  return of(input).alltoall_base(output, input, output_splits, input_splits, options);
}

GlooStandIn::WorkPtr GlooStandIn::alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) {
  return of(inputs).alltoall(outputs, inputs, options);
}

GlooStandIn::WorkPtr GlooStandIn::send(Tensors& tensors, int to, int tag) { return of(tensors).send(tensors, to, tag); }

GlooStandIn::WorkPtr GlooStandIn::recv(Tensors& tensors, int from, int tag) {
  return of(tensors).recv(tensors, from, tag);
}

GlooStandIn::WorkPtr GlooStandIn::recvAnysource(Tensors& tensors, int tag) {
  return of(tensors).recvAnysource(tensors, tag);
}

void GlooStandIn::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  kolo_->monitoredBarrier(options, wait_all_ranks);
}

void GlooStandIn::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  kolo_->setTimeout(timeout);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gloo_) gloo_->setTimeout(timeout);
}

void GlooStandIn::abort() {
  kolo_->abort();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gloo_) gloo_->abort();
}

void GlooStandIn::shutdown() {
  kolo_->shutdown();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (gloo_) gloo_->shutdown();
}

c10::intrusive_ptr<Backend> GlooStandIn::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                               const std::vector<int>& ranks,
                                               const c10::intrusive_ptr<Options>& options) {
  const auto part = c10::dynamic_intrusive_pointer_cast<ProcessGroupKolo>(kolo_->split(store, ranks, options));
  if (!part) return nullptr;
  return c10::make_intrusive<GlooStandIn>(part, options->timeout, MakeGloo());
}

}  // namespace kolo::c10d
#endif
