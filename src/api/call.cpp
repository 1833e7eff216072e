// SPDX-License-Identifier: Apache-2.0
#include "api/call.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "api/rooted.hpp"

namespace kolo {

namespace {

Call describe(Call::Impl::Make make) { return Call(std::make_shared<const Call::Impl>(std::move(make))); }

}  // namespace

Call::Call(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

Call Call::allreduce(TensorView inout, const AllreduceOptions& options) {
  return describe(
      [=](std::string_view name, const Group&) { return api::allreduce_request(name, inout, inout, true, options); });
}
Call Call::allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  return describe(
      [=](std::string_view name, const Group&) { return api::allreduce_request(name, in, out, false, options); });
}
Call Call::reduce(TensorView inout, int root, const ReduceOptions& options) {
  return describe([=](std::string_view name, const Group& group) {
    return api::reduce_request(name, inout, inout, true, root, group, options);
  });
}
Call Call::reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                       const ReduceOptions& options) {
  return describe([=](std::string_view name, const Group& group) {
    return api::reduce_request(name, in, out, false, root, group, options);
  });
}
Call Call::broadcast(TensorView inout, int root, const BroadcastOptions& options) {
  return describe([=](std::string_view name, const Group& group) {
    return api::broadcast_request(name, inout, inout, true, root, size(group), options);
  });
}
Call Call::broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options) {
  return describe([=](std::string_view name, const Group& group) {
    return api::broadcast_request(name, in, out, false, root, size(group), options);
  });
}
Call Call::allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  return describe(
      [=](std::string_view name, const Group& group) { return api::allgather_request(name, in, out, group, options); });
}
Call Call::gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root,
                       const GatherOptions& options) {
  return describe([=](std::string_view name, const Group& group) {
    return api::gather_into_request(name, in, out, root, group, options);
  });
}
Call Call::scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root,
                        Span<const std::int64_t> splits, const ScatterOptions& options) {
  return describe(
      [=, rows = std::vector<std::int64_t>(splits.begin(), splits.end())](std::string_view name, const Group& group) {
        return api::scatter_request(name, in, out, root, rows, group, options);
      });
}
Call Call::alltoall_into(ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                         const AlltoallOptions& options) {
  return describe(
      [=, rows = std::vector<std::int64_t>(splits.begin(), splits.end())](std::string_view name, const Group& group) {
        return api::alltoall_request(name, in, out, rows, api::RankAndSize(group), options);
      });
}
Call Call::reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options) {
  return describe([=](std::string_view name, const Group& group) {
    return api::reduce_scatter_request(name, in, out, api::RankAndSize(group), options);
  });
}

}  // namespace kolo
