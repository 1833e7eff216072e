// SPDX-License-Identifier: Apache-2.0
#include "c10d/kinds.hpp"

#include <optional>
#include <string_view>

#include <kolo/call.hpp>

namespace kolo::c10d {
namespace {

template <class KoloOptions>
KoloOptions reducing(const Arguments& arguments) {
  return KoloOptions(arguments.reduction.op)
      .with_prescale(arguments.reduction.prescale)
      .with_timeout(arguments.timeout);
}

TensorView in(const Arguments& arguments) { return arguments.in.view(arguments.elements, arguments.in_rows); }
TensorView out(const Arguments& arguments) { return arguments.out.view(arguments.elements, arguments.out_rows); }
std::optional<TensorView> out_if_any(const Arguments& arguments) {
  if (arguments.out.empty()) return std::nullopt;
  return out(arguments);
}
std::optional<ConstTensorView> in_if_any(const Arguments& arguments) {
  if (arguments.in.empty()) return std::nullopt;
  return in(arguments);
}

Call allreduce(const Arguments& arguments) {
  return Call::allreduce(arguments.out.view(arguments.elements), reducing<AllreduceOptions>(arguments));
}

Call broadcast(const Arguments& arguments) {
  return Call::broadcast(arguments.out.view(arguments.elements), arguments.root,
                         BroadcastOptions{}.with_timeout(arguments.timeout));
}

Call reduce(const Arguments& arguments) {
  return Call::reduce(arguments.out.view(arguments.elements), arguments.root, reducing<ReduceOptions>(arguments));
}

/// On a GPU it matters to know that all ranks give equally much.
Call allgather(const Arguments& arguments) {
  const ConstTensorView from = in(arguments);
  const auto options = AllgatherOptions{}.with_timeout(arguments.timeout);
  if (from.device().kind == DeviceKind::cpu || !arguments.out.is_even())
    return Call::allgather_into(from, out(arguments), options);
  return Call::allgather_equal_into(from, out(arguments), options);
}

Call gather(const Arguments& arguments) {
  return Call::gather_into(in(arguments), out_if_any(arguments), arguments.root,
                           GatherOptions{}.with_timeout(arguments.timeout));
}

Call scatter(const Arguments& arguments) {
  return Call::scatter_into(in_if_any(arguments), out(arguments), arguments.root, arguments.splits,
                            ScatterOptions{}.with_timeout(arguments.timeout));
}

Call reduce_scatter(const Arguments& arguments) {
  return Call::reduce_scatter_into(in(arguments), out(arguments), reducing<ReduceScatterOptions>(arguments));
}

Call alltoall(const Arguments& arguments) {
  const auto options = AlltoallOptions{}.with_timeout(arguments.timeout);
  if (arguments.splits.empty()) return Call::alltoall_into(in(arguments), out(arguments), {}, options);
  return Call::alltoall_known_into(in(arguments), out(arguments), arguments.splits, arguments.received_splits, options);
}

}  // namespace

std::shared_ptr<Handle> Kind::start(const Group& group, const Arguments& arguments) const {
  const Where where = arguments.name.empty() ? Where(group) : Where(group, arguments.name);
  return std::make_shared<Handle>(kolo::start(where, describe(arguments)));
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
