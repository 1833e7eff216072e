// SPDX-License-Identifier: Apache-2.0
#include "c10d/kinds.hpp"

#include <optional>
#include <string_view>
#include <utility>

#include <kolo/collectives.hpp>

namespace kolo::c10d {
namespace {

/// Starts it by `start()`, or by `start(name)` if it has a name.
template <class Start>
std::shared_ptr<Handle> begin(const Step& step, Start start) {
  return std::make_shared<Handle>(step.name.empty() ? start() : start(std::string_view(step.name)));
}

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

std::shared_ptr<Handle> allreduce(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return allreduce_async(group, name..., step.out.view(step.elements), reducing<AllreduceOptions>(step));
  });
}

std::shared_ptr<Handle> broadcast(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return broadcast_async(group, name..., step.out.view(step.elements), step.root,
                           BroadcastOptions{}.with_timeout(step.timeout));
  });
}

std::shared_ptr<Handle> reduce(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return reduce_async(group, name..., step.out.view(step.elements), step.root, reducing<ReduceOptions>(step));
  });
}

std::shared_ptr<Handle> allgather(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return allgather_into_async(group, name..., in(step), out(step), AllgatherOptions{}.with_timeout(step.timeout));
  });
}

std::shared_ptr<Handle> gather(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return gather_into_async(group, name..., in(step), out_if_any(step), step.root,
                             GatherOptions{}.with_timeout(step.timeout));
  });
}

std::shared_ptr<Handle> scatter(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return scatter_into_async(group, name..., in_if_any(step), out(step), step.root, step.splits,
                              ScatterOptions{}.with_timeout(step.timeout));
  });
}

std::shared_ptr<Handle> reduce_scatter(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return reduce_scatter_into_async(group, name..., in(step), out(step), reducing<ReduceScatterOptions>(step));
  });
}

std::shared_ptr<Handle> alltoall(const Group& group, const Step& step) {
  return begin(step, [&](auto... name) {
    return alltoall_into_async(group, name..., in(step), out(step), step.splits,
                               AlltoallOptions{}.with_timeout(step.timeout));
  });
}

}  // namespace

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
