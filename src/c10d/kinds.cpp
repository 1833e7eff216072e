// SPDX-License-Identifier: Apache-2.0
#include "c10d/kinds.hpp"

#include <optional>
#include <string_view>

#include <kolo/call.hpp>

namespace kolo::c10d {
namespace {

template <class KoloOptions>
KoloOptions reducing(const Step& step) {
  return KoloOptions(step.reduction.op).with_prescale(step.reduction.prescale).with_timeout(step.timeout);
}

TensorView in(const Step& step) { return step.in.view(step.elements, step.in_rows); }
TensorView out(const Step& step) { return step.out.view(step.elements, step.out_rows); }
std::optional<TensorView> out_if_any(const Step& step) {
  if (step.out.empty()) return std::nullopt;
  return out(step);
}
std::optional<ConstTensorView> in_if_any(const Step& step) {
  if (step.in.empty()) return std::nullopt;
  return in(step);
}

Call allreduce(const Step& step) {
  return Call::allreduce(step.out.view(step.elements), reducing<AllreduceOptions>(step));
}

Call broadcast(const Step& step) {
  return Call::broadcast(step.out.view(step.elements), step.root, BroadcastOptions{}.with_timeout(step.timeout));
}

Call reduce(const Step& step) {
  return Call::reduce(step.out.view(step.elements), step.root, reducing<ReduceOptions>(step));
}

/// On a GPU it matters to know that all ranks give equally much.
Call allgather(const Step& step) {
  const ConstTensorView from = in(step);
  const auto options = AllgatherOptions{}.with_timeout(step.timeout);
  if (from.device().kind == DeviceKind::cpu || !step.out.is_even())
    return Call::allgather_into(from, out(step), options);
  return Call::allgather_equal_into(from, out(step), options);
}

Call gather(const Step& step) {
  return Call::gather_into(in(step), out_if_any(step), step.root, GatherOptions{}.with_timeout(step.timeout));
}

Call scatter(const Step& step) {
  return Call::scatter_into(in_if_any(step), out(step), step.root, step.splits,
                            ScatterOptions{}.with_timeout(step.timeout));
}

Call reduce_scatter(const Step& step) {
  return Call::reduce_scatter_into(in(step), out(step), reducing<ReduceScatterOptions>(step));
}

Call alltoall(const Step& step) {
  return Call::alltoall_into(in(step), out(step), step.splits, AlltoallOptions{}.with_timeout(step.timeout));
}

}  // namespace

std::shared_ptr<Handle> Kind::start(const Group& group, const Step& step) const {
  const Where where = step.name.empty() ? Where(group) : Where(group, step.name);
  return std::make_shared<Handle>(kolo::start(where, describe(step)));
}

using ::c10d::OpType;
const Kind kAllreduce{"all_reduce", "kolo:all_reduce", OpType::ALLREDUCE, true, allreduce};
const Kind kAllreduceCoalesced{"all_reduce_coalesced", "kolo:all_reduce", OpType::ALLREDUCE_COALESCED, true, allreduce};
const Kind kBroadcast{"broadcast", "kolo:broadcast", OpType::BROADCAST, false, broadcast};
const Kind kReduce{"reduce", "kolo:reduce", OpType::REDUCE, true, reduce};
const Kind kAllgather{"all_gather", "kolo:all_gather", OpType::ALLGATHER, false, allgather};
const Kind kAllgatherBase{"all_gather_into_tensor", "kolo:_all_gather_base", OpType::_ALLGATHER_BASE, false, allgather};
const Kind kAllgatherCoalesced{"all_gather_coalesced", "kolo:all_gather", OpType::ALLGATHER_COALESCED, false,
                               allgather};
const Kind kAllgatherIntoTensorCoalesced{"all_gather_into_tensor_coalesced", "kolo:_all_gather_base",
                                         OpType::ALLGATHER_COALESCED, false, allgather};
const Kind kGather{"gather", "kolo:gather", OpType::GATHER, false, gather};
const Kind kScatter{"scatter", "kolo:scatter", OpType::SCATTER, false, scatter};
const Kind kReduceScatter{"reduce_scatter", "kolo:reduce_scatter", OpType::REDUCE_SCATTER, true, reduce_scatter};
const Kind kReduceScatterUneven{"reduce_scatter", "kolo:reduce_scatter", OpType::REDUCE_SCATTER, true, reduce};
const Kind kReduceScatterBase{"reduce_scatter_tensor", "kolo:_reduce_scatter_base", OpType::_REDUCE_SCATTER_BASE, true,
                              reduce_scatter};
const Kind kReduceScatterTensorCoalesced{"reduce_scatter_tensor_coalesced", "kolo:_reduce_scatter_base",
                                         OpType::REDUCE_SCATTER, true, reduce_scatter};
const Kind kAlltoall{"all_to_all", "kolo:all_to_all", OpType::ALLTOALL, false, alltoall};
const Kind kAlltoallBase{"all_to_all_single", "kolo:all_to_all", OpType::ALLTOALL_BASE, false, alltoall};

}  // namespace kolo::c10d
