// SPDX-License-Identifier: Apache-2.0
//
// The calls of include/kolo/collectives.hpp: each checks (request.hpp) and submits. Those without a context use the
// thread's.
#include <kolo/collectives.hpp>

#include "api/context_impl.hpp"
#include "api/rooted.hpp"
#include "api/submit.hpp"

namespace kolo {

// ---------------------------------------------------------------- allreduce

void allreduce(const Group& group, std::string_view name, TensorView inout, const AllreduceOptions& options) {
  api::check_name(name);
  api::run(group, name, api::allreduce_request(name, inout, inout, true, options));
}
void allreduce(const Group& group, TensorView inout, const AllreduceOptions& options) {
  api::run_unnamed_allreduce(group, inout, inout, true, options);
}
void allreduce_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                    const AllreduceOptions& options) {
  api::check_name(name);
  api::run(group, name, api::allreduce_request(name, in, out, false, options));
}
void allreduce_into(const Group& group, ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  api::run_unnamed_allreduce(group, in, out, false, options);
}
Handle allreduce_async(const Group& group, TensorView inout, const AllreduceOptions& options) {
  return Handle(api::call_allreduce(group, inout, options));
}
Handle allreduce_async(const Group& group, std::string_view name, TensorView inout, const AllreduceOptions& options) {
  return Handle(api::submit_allreduce(group, name, inout, options));
}
Handle allreduce_into_async(const Group& group, ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  return Handle(api::call_allreduce_into(group, in, out, options));
}
Handle allreduce_into_async(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                            const AllreduceOptions& options) {
  return Handle(api::submit_allreduce_into(group, name, in, out, options));
}

void allreduce(TensorView inout, const AllreduceOptions& options) { allreduce(current_context(), inout, options); }
void allreduce(std::string_view name, TensorView inout, const AllreduceOptions& options) {
  allreduce(current_context(), name, inout, options);
}
void allreduce_into(ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  allreduce_into(current_context(), in, out, options);
}
void allreduce_into(std::string_view name, ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  allreduce_into(current_context(), name, in, out, options);
}
Handle allreduce_async(TensorView inout, const AllreduceOptions& options) {
  return Handle(api::call_allreduce(current_context(), inout, options));
}
Handle allreduce_async(std::string_view name, TensorView inout, const AllreduceOptions& options) {
  return Handle(api::submit_allreduce(current_context(), name, inout, options));
}
Handle allreduce_into_async(ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  return Handle(api::call_allreduce_into(current_context(), in, out, options));
}
Handle allreduce_into_async(std::string_view name, ConstTensorView in, TensorView out,
                            const AllreduceOptions& options) {
  return Handle(api::submit_allreduce_into(current_context(), name, in, out, options));
}

// ---------------------------------------------------------------- grouped allreduce

void grouped_allreduce(const Group& group, std::string_view name, Span<const NamedView> members,
                       const AllreduceOptions& options) {
  api::check_name(name);
  api::run(group, name, api::grouped_allreduce_request(name, members, options));
}
Handle grouped_allreduce_async(const Group& group, Span<const NamedView> members, const AllreduceOptions& options) {
  return Handle(api::call(group, api::grouped_allreduce_request({}, members, options)));
}
Handle grouped_allreduce_async(const Group& group, std::string_view name, Span<const NamedView> members,
                               const AllreduceOptions& options) {
  return Handle(api::submit(group, name, api::grouped_allreduce_request(name, members, options)));
}

void grouped_allreduce(std::string_view name, Span<const NamedView> members, const AllreduceOptions& options) {
  grouped_allreduce(current_context(), name, members, options);
}
Handle grouped_allreduce_async(Span<const NamedView> members, const AllreduceOptions& options) {
  return grouped_allreduce_async(current_context(), members, options);
}
Handle grouped_allreduce_async(std::string_view name, Span<const NamedView> members, const AllreduceOptions& options) {
  return grouped_allreduce_async(current_context(), name, members, options);
}

// ---------------------------------------------------------------- reduce

void reduce(const Group& group, std::string_view name, TensorView inout, int root, const ReduceOptions& options) {
  api::check_name(name);
  api::run(group, name, api::reduce_request(name, inout, inout, true, root, group, options));
}
void reduce(const Group& group, TensorView inout, int root, const ReduceOptions& options) {
  api::run(group, {}, api::reduce_request({}, inout, inout, true, root, group, options));
}
Handle reduce_async(const Group& group, TensorView inout, int root, const ReduceOptions& options) {
  return Handle(api::call(group, api::reduce_request({}, inout, inout, true, root, group, options)));
}
Handle reduce_async(const Group& group, std::string_view name, TensorView inout, int root,
                    const ReduceOptions& options) {
  return Handle(api::submit(group, name, api::reduce_request(name, inout, inout, true, root, group, options)));
}
void reduce_into(const Group& group, std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                 int root, const ReduceOptions& options) {
  api::check_name(name);
  api::run(group, name, api::reduce_request(name, in, out, false, root, group, options));
}
void reduce_into(const Group& group, ConstTensorView in, const std::optional<TensorView>& out, int root,
                 const ReduceOptions& options) {
  api::run(group, {}, api::reduce_request({}, in, out, false, root, group, options));
}
Handle reduce_into_async(const Group& group, ConstTensorView in, const std::optional<TensorView>& out, int root,
                         const ReduceOptions& options) {
  return Handle(api::call(group, api::reduce_request({}, in, out, false, root, group, options)));
}
Handle reduce_into_async(const Group& group, std::string_view name, ConstTensorView in,
                         const std::optional<TensorView>& out, int root, const ReduceOptions& options) {
  return Handle(api::submit(group, name, api::reduce_request(name, in, out, false, root, group, options)));
}

void reduce(TensorView inout, int root, const ReduceOptions& options) {
  reduce(current_context(), inout, root, options);
}
void reduce(std::string_view name, TensorView inout, int root, const ReduceOptions& options) {
  reduce(current_context(), name, inout, root, options);
}
Handle reduce_async(TensorView inout, int root, const ReduceOptions& options) {
  return reduce_async(current_context(), inout, root, options);
}
Handle reduce_async(std::string_view name, TensorView inout, int root, const ReduceOptions& options) {
  return reduce_async(current_context(), name, inout, root, options);
}
void reduce_into(ConstTensorView in, const std::optional<TensorView>& out, int root, const ReduceOptions& options) {
  reduce_into(current_context(), in, out, root, options);
}
void reduce_into(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out, int root,
                 const ReduceOptions& options) {
  reduce_into(current_context(), name, in, out, root, options);
}
Handle reduce_into_async(ConstTensorView in, const std::optional<TensorView>& out, int root,
                         const ReduceOptions& options) {
  return reduce_into_async(current_context(), in, out, root, options);
}
Handle reduce_into_async(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out, int root,
                         const ReduceOptions& options) {
  return reduce_into_async(current_context(), name, in, out, root, options);
}

// ---------------------------------------------------------------- broadcast

void broadcast(const Group& group, std::string_view name, TensorView inout, int root, const BroadcastOptions& options) {
  api::check_name(name);
  api::run(group, name, api::broadcast_request(name, inout, inout, true, root, size(group), options));
}
void broadcast(const Group& group, TensorView inout, int root, const BroadcastOptions& options) {
  api::run(group, {}, api::broadcast_request({}, inout, inout, true, root, size(group), options));
}
Handle broadcast_async(const Group& group, TensorView inout, int root, const BroadcastOptions& options) {
  return Handle(api::call(group, api::broadcast_request({}, inout, inout, true, root, size(group), options)));
}
Handle broadcast_async(const Group& group, std::string_view name, TensorView inout, int root,
                       const BroadcastOptions& options) {
  return Handle(api::submit(group, name, api::broadcast_request(name, inout, inout, true, root, size(group), options)));
}
void broadcast_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out, int root,
                    const BroadcastOptions& options) {
  api::check_name(name);
  api::run(group, name, api::broadcast_request(name, in, out, false, root, size(group), options));
}
void broadcast_into(const Group& group, ConstTensorView in, TensorView out, int root, const BroadcastOptions& options) {
  api::run(group, {}, api::broadcast_request({}, in, out, false, root, size(group), options));
}
Handle broadcast_into_async(const Group& group, ConstTensorView in, TensorView out, int root,
                            const BroadcastOptions& options) {
  return Handle(api::call(group, api::broadcast_request({}, in, out, false, root, size(group), options)));
}
Handle broadcast_into_async(const Group& group, std::string_view name, ConstTensorView in, TensorView out, int root,
                            const BroadcastOptions& options) {
  return Handle(api::submit(group, name, api::broadcast_request(name, in, out, false, root, size(group), options)));
}

void broadcast(TensorView inout, int root, const BroadcastOptions& options) {
  broadcast(current_context(), inout, root, options);
}
void broadcast(std::string_view name, TensorView inout, int root, const BroadcastOptions& options) {
  broadcast(current_context(), name, inout, root, options);
}
Handle broadcast_async(TensorView inout, int root, const BroadcastOptions& options) {
  return broadcast_async(current_context(), inout, root, options);
}
Handle broadcast_async(std::string_view name, TensorView inout, int root, const BroadcastOptions& options) {
  return broadcast_async(current_context(), name, inout, root, options);
}
void broadcast_into(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options) {
  broadcast_into(current_context(), in, out, root, options);
}
void broadcast_into(std::string_view name, ConstTensorView in, TensorView out, int root,
                    const BroadcastOptions& options) {
  broadcast_into(current_context(), name, in, out, root, options);
}
Handle broadcast_into_async(ConstTensorView in, TensorView out, int root, const BroadcastOptions& options) {
  return broadcast_into_async(current_context(), in, out, root, options);
}
Handle broadcast_into_async(std::string_view name, ConstTensorView in, TensorView out, int root,
                            const BroadcastOptions& options) {
  return broadcast_into_async(current_context(), name, in, out, root, options);
}

// ---------------------------------------------------------------- allgather

Tensor allgather(const Group& group, ConstTensorView in, const AllgatherOptions& options) {
  return api::run(group, {}, api::allgather_request({}, in, {}, group, options)).tensor;
}
Tensor allgather(const Group& group, std::string_view name, ConstTensorView in, const AllgatherOptions& options) {
  api::check_name(name);
  return api::run(group, name, api::allgather_request(name, in, {}, group, options)).tensor;
}
Future<Tensor> allgather_async(const Group& group, ConstTensorView in, const AllgatherOptions& options) {
  return Future<Tensor>(api::call(group, api::allgather_request({}, in, {}, group, options)));
}
Future<Tensor> allgather_async(const Group& group, std::string_view name, ConstTensorView in,
                               const AllgatherOptions& options) {
  return Future<Tensor>(api::submit(group, name, api::allgather_request(name, in, {}, group, options)));
}
void allgather_into(const Group& group, ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  api::run(group, {}, api::allgather_request({}, in, out, group, options));
}
void allgather_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                    const AllgatherOptions& options) {
  api::check_name(name);
  api::run(group, name, api::allgather_request(name, in, out, group, options));
}
Handle allgather_into_async(const Group& group, ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  return Handle(api::call(group, api::allgather_request({}, in, out, group, options)));
}
Handle allgather_into_async(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                            const AllgatherOptions& options) {
  return Handle(api::submit(group, name, api::allgather_request(name, in, out, group, options)));
}

Tensor allgather(ConstTensorView in, const AllgatherOptions& options) {
  return allgather(current_context(), in, options);
}
Tensor allgather(std::string_view name, ConstTensorView in, const AllgatherOptions& options) {
  return allgather(current_context(), name, in, options);
}
Future<Tensor> allgather_async(ConstTensorView in, const AllgatherOptions& options) {
  return allgather_async(current_context(), in, options);
}
Future<Tensor> allgather_async(std::string_view name, ConstTensorView in, const AllgatherOptions& options) {
  return allgather_async(current_context(), name, in, options);
}
void allgather_into(ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  allgather_into(current_context(), in, out, options);
}
void allgather_into(std::string_view name, ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  allgather_into(current_context(), name, in, out, options);
}
Handle allgather_into_async(ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  return allgather_into_async(current_context(), in, out, options);
}
Handle allgather_into_async(std::string_view name, ConstTensorView in, TensorView out,
                            const AllgatherOptions& options) {
  return allgather_into_async(current_context(), name, in, out, options);
}

// ---------------------------------------------------------------- gather

Tensor gather(const Group& group, ConstTensorView in, int root, const GatherOptions& options) {
  return api::run(group, {}, api::gather_request({}, in, root, group, options)).tensor;
}
Tensor gather(const Group& group, std::string_view name, ConstTensorView in, int root, const GatherOptions& options) {
  api::check_name(name);
  return api::run(group, name, api::gather_request(name, in, root, group, options)).tensor;
}
Future<Tensor> gather_async(const Group& group, ConstTensorView in, int root, const GatherOptions& options) {
  return Future<Tensor>(api::call(group, api::gather_request({}, in, root, group, options)));
}
Future<Tensor> gather_async(const Group& group, std::string_view name, ConstTensorView in, int root,
                            const GatherOptions& options) {
  return Future<Tensor>(api::submit(group, name, api::gather_request(name, in, root, group, options)));
}
void gather_into(const Group& group, ConstTensorView in, const std::optional<TensorView>& out, int root,
                 const GatherOptions& options) {
  api::run(group, {}, api::gather_into_request({}, in, out, root, group, options));
}
void gather_into(const Group& group, std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                 int root, const GatherOptions& options) {
  api::check_name(name);
  api::run(group, name, api::gather_into_request(name, in, out, root, group, options));
}
Handle gather_into_async(const Group& group, ConstTensorView in, const std::optional<TensorView>& out, int root,
                         const GatherOptions& options) {
  return Handle(api::call(group, api::gather_into_request({}, in, out, root, group, options)));
}
Handle gather_into_async(const Group& group, std::string_view name, ConstTensorView in,
                         const std::optional<TensorView>& out, int root, const GatherOptions& options) {
  return Handle(api::submit(group, name, api::gather_into_request(name, in, out, root, group, options)));
}

Tensor gather(ConstTensorView in, int root, const GatherOptions& options) {
  return gather(current_context(), in, root, options);
}
Tensor gather(std::string_view name, ConstTensorView in, int root, const GatherOptions& options) {
  return gather(current_context(), name, in, root, options);
}
Future<Tensor> gather_async(ConstTensorView in, int root, const GatherOptions& options) {
  return gather_async(current_context(), in, root, options);
}
Future<Tensor> gather_async(std::string_view name, ConstTensorView in, int root, const GatherOptions& options) {
  return gather_async(current_context(), name, in, root, options);
}
void gather_into(ConstTensorView in, const std::optional<TensorView>& out, int root, const GatherOptions& options) {
  gather_into(current_context(), in, out, root, options);
}
void gather_into(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out, int root,
                 const GatherOptions& options) {
  gather_into(current_context(), name, in, out, root, options);
}
Handle gather_into_async(ConstTensorView in, const std::optional<TensorView>& out, int root,
                         const GatherOptions& options) {
  return gather_into_async(current_context(), in, out, root, options);
}
Handle gather_into_async(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out, int root,
                         const GatherOptions& options) {
  return gather_into_async(current_context(), name, in, out, root, options);
}

// ---------------------------------------------------------------- scatter

void scatter_into(const Group& group, const std::optional<ConstTensorView>& in, TensorView out, int root,
                  Span<const std::int64_t> splits, const ScatterOptions& options) {
  api::run(group, {}, api::scatter_request({}, in, out, root, splits, group, options));
}
void scatter_into(const Group& group, std::string_view name, const std::optional<ConstTensorView>& in, TensorView out,
                  int root, Span<const std::int64_t> splits, const ScatterOptions& options) {
  api::check_name(name);
  api::run(group, name, api::scatter_request(name, in, out, root, splits, group, options));
}
Handle scatter_into_async(const Group& group, const std::optional<ConstTensorView>& in, TensorView out, int root,
                          Span<const std::int64_t> splits, const ScatterOptions& options) {
  return Handle(api::call(group, api::scatter_request({}, in, out, root, splits, group, options)));
}
Handle scatter_into_async(const Group& group, std::string_view name, const std::optional<ConstTensorView>& in,
                          TensorView out, int root, Span<const std::int64_t> splits, const ScatterOptions& options) {
  return Handle(api::submit(group, name, api::scatter_request(name, in, out, root, splits, group, options)));
}

void scatter_into(const std::optional<ConstTensorView>& in, TensorView out, int root, Span<const std::int64_t> splits,
                  const ScatterOptions& options) {
  scatter_into(current_context(), in, out, root, splits, options);
}
void scatter_into(std::string_view name, const std::optional<ConstTensorView>& in, TensorView out, int root,
                  Span<const std::int64_t> splits, const ScatterOptions& options) {
  scatter_into(current_context(), name, in, out, root, splits, options);
}
Handle scatter_into_async(const std::optional<ConstTensorView>& in, TensorView out, int root,
                          Span<const std::int64_t> splits, const ScatterOptions& options) {
  return scatter_into_async(current_context(), in, out, root, splits, options);
}
Handle scatter_into_async(std::string_view name, const std::optional<ConstTensorView>& in, TensorView out, int root,
                          Span<const std::int64_t> splits, const ScatterOptions& options) {
  return scatter_into_async(current_context(), name, in, out, root, splits, options);
}

// ---------------------------------------------------------------- alltoall

namespace {
AlltoallResult taken(api::Result result) { return {std::move(result.tensor), std::move(result.received_splits)}; }
}  // namespace

AlltoallResult alltoall(const Group& group, ConstTensorView in, Span<const std::int64_t> splits,
                        const AlltoallOptions& options) {
  return taken(api::run(group, {}, api::alltoall_request({}, in, {}, splits, api::RankAndSize(group), options)));
}
AlltoallResult alltoall(const Group& group, std::string_view name, ConstTensorView in, Span<const std::int64_t> splits,
                        const AlltoallOptions& options) {
  api::check_name(name);
  return taken(api::run(group, name, api::alltoall_request(name, in, {}, splits, api::RankAndSize(group), options)));
}
Future<AlltoallResult> alltoall_async(const Group& group, ConstTensorView in, Span<const std::int64_t> splits,
                                      const AlltoallOptions& options) {
  return Future<AlltoallResult>(
      api::call(group, api::alltoall_request({}, in, {}, splits, api::RankAndSize(group), options)));
}
Future<AlltoallResult> alltoall_async(const Group& group, std::string_view name, ConstTensorView in,
                                      Span<const std::int64_t> splits, const AlltoallOptions& options) {
  return Future<AlltoallResult>(
      api::submit(group, name, api::alltoall_request(name, in, {}, splits, api::RankAndSize(group), options)));
}
void alltoall_into(const Group& group, ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                   const AlltoallOptions& options) {
  api::run(group, {}, api::alltoall_request({}, in, out, splits, api::RankAndSize(group), options));
}
void alltoall_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                   Span<const std::int64_t> splits, const AlltoallOptions& options) {
  api::check_name(name);
  api::run(group, name, api::alltoall_request(name, in, out, splits, api::RankAndSize(group), options));
}
Handle alltoall_into_async(const Group& group, ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                           const AlltoallOptions& options) {
  return Handle(api::call(group, api::alltoall_request({}, in, out, splits, api::RankAndSize(group), options)));
}
Handle alltoall_into_async(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                           Span<const std::int64_t> splits, const AlltoallOptions& options) {
  return Handle(
      api::submit(group, name, api::alltoall_request(name, in, out, splits, api::RankAndSize(group), options)));
}

AlltoallResult alltoall(ConstTensorView in, Span<const std::int64_t> splits, const AlltoallOptions& options) {
  return alltoall(current_context(), in, splits, options);
}
AlltoallResult alltoall(std::string_view name, ConstTensorView in, Span<const std::int64_t> splits,
                        const AlltoallOptions& options) {
  return alltoall(current_context(), name, in, splits, options);
}
Future<AlltoallResult> alltoall_async(ConstTensorView in, Span<const std::int64_t> splits,
                                      const AlltoallOptions& options) {
  return alltoall_async(current_context(), in, splits, options);
}
Future<AlltoallResult> alltoall_async(std::string_view name, ConstTensorView in, Span<const std::int64_t> splits,
                                      const AlltoallOptions& options) {
  return alltoall_async(current_context(), name, in, splits, options);
}
void alltoall_into(ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                   const AlltoallOptions& options) {
  alltoall_into(current_context(), in, out, splits, options);
}
void alltoall_into(std::string_view name, ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                   const AlltoallOptions& options) {
  alltoall_into(current_context(), name, in, out, splits, options);
}
Handle alltoall_into_async(ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                           const AlltoallOptions& options) {
  return alltoall_into_async(current_context(), in, out, splits, options);
}
Handle alltoall_into_async(std::string_view name, ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                           const AlltoallOptions& options) {
  return alltoall_into_async(current_context(), name, in, out, splits, options);
}

// ---------------------------------------------------------------- reduce_scatter

Tensor reduce_scatter(const Group& group, ConstTensorView in, const ReduceScatterOptions& options) {
  return api::run(group, {}, api::reduce_scatter_request({}, in, {}, api::RankAndSize(group), options)).tensor;
}
Tensor reduce_scatter(const Group& group, std::string_view name, ConstTensorView in,
                      const ReduceScatterOptions& options) {
  api::check_name(name);
  return api::run(group, name, api::reduce_scatter_request(name, in, {}, api::RankAndSize(group), options)).tensor;
}
Future<Tensor> reduce_scatter_async(const Group& group, ConstTensorView in, const ReduceScatterOptions& options) {
  return Future<Tensor>(api::call(group, api::reduce_scatter_request({}, in, {}, api::RankAndSize(group), options)));
}
Future<Tensor> reduce_scatter_async(const Group& group, std::string_view name, ConstTensorView in,
                                    const ReduceScatterOptions& options) {
  return Future<Tensor>(
      api::submit(group, name, api::reduce_scatter_request(name, in, {}, api::RankAndSize(group), options)));
}
void reduce_scatter_into(const Group& group, ConstTensorView in, TensorView out, const ReduceScatterOptions& options) {
  api::run(group, {}, api::reduce_scatter_request({}, in, out, api::RankAndSize(group), options));
}
void reduce_scatter_into(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                         const ReduceScatterOptions& options) {
  api::check_name(name);
  api::run(group, name, api::reduce_scatter_request(name, in, out, api::RankAndSize(group), options));
}
Handle reduce_scatter_into_async(const Group& group, ConstTensorView in, TensorView out,
                                 const ReduceScatterOptions& options) {
  return Handle(api::call(group, api::reduce_scatter_request({}, in, out, api::RankAndSize(group), options)));
}
Handle reduce_scatter_into_async(const Group& group, std::string_view name, ConstTensorView in, TensorView out,
                                 const ReduceScatterOptions& options) {
  return Handle(api::submit(group, name, api::reduce_scatter_request(name, in, out, api::RankAndSize(group), options)));
}

Tensor reduce_scatter(ConstTensorView in, const ReduceScatterOptions& options) {
  return reduce_scatter(current_context(), in, options);
}
Tensor reduce_scatter(std::string_view name, ConstTensorView in, const ReduceScatterOptions& options) {
  return reduce_scatter(current_context(), name, in, options);
}
Future<Tensor> reduce_scatter_async(ConstTensorView in, const ReduceScatterOptions& options) {
  return reduce_scatter_async(current_context(), in, options);
}
Future<Tensor> reduce_scatter_async(std::string_view name, ConstTensorView in, const ReduceScatterOptions& options) {
  return reduce_scatter_async(current_context(), name, in, options);
}
void reduce_scatter_into(ConstTensorView in, TensorView out, const ReduceScatterOptions& options) {
  reduce_scatter_into(current_context(), in, out, options);
}
void reduce_scatter_into(std::string_view name, ConstTensorView in, TensorView out,
                         const ReduceScatterOptions& options) {
  reduce_scatter_into(current_context(), name, in, out, options);
}
Handle reduce_scatter_into_async(ConstTensorView in, TensorView out, const ReduceScatterOptions& options) {
  return reduce_scatter_into_async(current_context(), in, out, options);
}
Handle reduce_scatter_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                 const ReduceScatterOptions& options) {
  return reduce_scatter_into_async(current_context(), name, in, out, options);
}

// ---------------------------------------------------------------- barrier, steps

void barrier(const Group& group, const BarrierOptions& options) { api::run(group, {}, api::barrier_request(options)); }
Handle barrier_async(const Group& group, const BarrierOptions& options) {
  return Handle(api::call(group, api::barrier_request(options)));
}
Handle barrier_async(const Group& group, std::string_view name, const BarrierOptions& options) {
  return Handle(api::submit(group, name, api::barrier_request(options)));
}
void barrier(const BarrierOptions& options) { barrier(current_context(), options); }
Handle barrier_async(const BarrierOptions& options) { return barrier_async(current_context(), options); }
Handle barrier_async(std::string_view name, const BarrierOptions& options) {
  return barrier_async(current_context(), name, options);
}

void end_step(const Group& group) { group.impl().engine().end_step(group.set().number); }
void end_step() { end_step(current_context()); }

}  // namespace kolo
