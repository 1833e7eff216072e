// SPDX-License-Identifier: Apache-2.0
#include "api/rooted.hpp"

#include "api/context_impl.hpp"

namespace kolo::api {
namespace {

Root root_of(const Group& group, int root) {
  const core::Topology& topology = group.set().topology;
  return {root, topology.size, topology.rank};
}

}  // namespace

Request reduce_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                       bool in_place, int root, const Group& group, const ReduceOptions& options) {
  const auto kind = core::CollectiveKind::reduce;
  const Root at = root_of(group, root);
  check_output_at_root(kind, name, out, at);
  AllreduceOptions reduction = AllreduceOptions(options.op).with_prescale(options.prescale);
  reduction.postscale = options.postscale;
  reduction.timeout = options.timeout;
  reduction.send_as = options.send_as;
  reduction.priority = options.priority;
  const TensorView nothing(nullptr, in.dtype(), in.shape(), in.device(), in.stream());
  Request request = tensor_request(kind, name, in, out.value_or(nothing), in_place || !out, reduction, at);
  if (!at.is_here()) request.buffers.front().output = nullptr;
  return request;
}

Request gather_request(std::string_view name, const ConstTensorView& in, int root, const Group& group,
                       const GatherOptions& options) {
  return gather_request(core::CollectiveKind::gather, name, in, {}, options.timeout, options.priority,
                        root_of(group, root));
}

Request gather_into_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                            int root, const Group& group, const GatherOptions& options) {
  const Root at = root_of(group, root);
  check_output_at_root(core::CollectiveKind::gather, name, out, at);
  return gather_request(core::CollectiveKind::gather, name, in, out, options.timeout, options.priority, at);
}

Request scatter_request(std::string_view name, const std::optional<ConstTensorView>& in, const TensorView& out,
                        int root, Span<const std::int64_t> splits, const Group& group, const ScatterOptions& options) {
  return scatter_request(name, in, out, splits, root_of(group, root), options);
}

}  // namespace kolo::api
