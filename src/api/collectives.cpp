// SPDX-License-Identifier: Apache-2.0
//
// The calls of include/kolo/collectives.hpp: each checks (request.hpp) and submits. Those without a context use the
// thread's.
#include <kolo/collectives.hpp>

#include "api/context_impl.hpp"
#include "api/request.hpp"

namespace kolo {

ReduceScatterOptions::ReduceScatterOptions(const AllreduceOptions& options)
    : op(options.op), prescale(options.prescale), postscale(options.postscale), timeout(options.timeout) {
  if (options.send_as) throw Error(ErrorCode::unsupported, "reduce_scatter: send_as is for allreduce only");
}

// ---------------------------------------------------------------- allreduce

void allreduce(Context& context, std::string_view name, TensorView inout, const AllreduceOptions& options) {
  api::check_name(name);
  api::run(context, name, api::allreduce_request(name, inout, inout, true, options));
}
void allreduce(Context& context, TensorView inout, const AllreduceOptions& options) {
  api::run_unnamed_allreduce(context, inout, inout, true, options);
}
void allreduce_into(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                    const AllreduceOptions& options) {
  api::check_name(name);
  api::run(context, name, api::allreduce_request(name, in, out, false, options));
}
void allreduce_into(Context& context, ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  api::run_unnamed_allreduce(context, in, out, false, options);
}
Handle allreduce_async(Context& context, std::string_view name, TensorView inout, const AllreduceOptions& options) {
  return Handle(api::submit_allreduce(context, name, inout, options));
}
Handle allreduce_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                            const AllreduceOptions& options) {
  return Handle(api::submit_allreduce_into(context, name, in, out, options));
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
Handle allreduce_async(std::string_view name, TensorView inout, const AllreduceOptions& options) {
  return Handle(api::submit_allreduce(current_context(), name, inout, options));
}
Handle allreduce_into_async(std::string_view name, ConstTensorView in, TensorView out,
                            const AllreduceOptions& options) {
  return Handle(api::submit_allreduce_into(current_context(), name, in, out, options));
}

// ---------------------------------------------------------------- grouped allreduce

void grouped_allreduce(Context& context, std::string_view group, Span<const NamedView> members,
                       const AllreduceOptions& options) {
  api::check_name(group);
  api::run(context, group, api::grouped_allreduce_request(group, members, options));
}
Handle grouped_allreduce_async(Context& context, std::string_view group, Span<const NamedView> members,
                               const AllreduceOptions& options) {
  return Handle(api::submit(context, group, api::grouped_allreduce_request(group, members, options)));
}

void grouped_allreduce(std::string_view group, Span<const NamedView> members, const AllreduceOptions& options) {
  grouped_allreduce(current_context(), group, members, options);
}
Handle grouped_allreduce_async(std::string_view group, Span<const NamedView> members, const AllreduceOptions& options) {
  return grouped_allreduce_async(current_context(), group, members, options);
}

// ---------------------------------------------------------------- broadcast

void broadcast(Context& context, std::string_view name, TensorView inout, int root, const BroadcastOptions& options) {
  api::check_name(name);
  api::run(context, name, api::broadcast_request(name, inout, inout, true, root, context.size(), options));
}
void broadcast(Context& context, TensorView inout, int root, const BroadcastOptions& options) {
  api::run(context, {}, api::broadcast_request({}, inout, inout, true, root, context.size(), options));
}
Handle broadcast_async(Context& context, std::string_view name, TensorView inout, int root,
                       const BroadcastOptions& options) {
  return Handle(
      api::submit(context, name, api::broadcast_request(name, inout, inout, true, root, context.size(), options)));
}
void broadcast_into(Context& context, std::string_view name, ConstTensorView in, TensorView out, int root,
                    const BroadcastOptions& options) {
  api::check_name(name);
  api::run(context, name, api::broadcast_request(name, in, out, false, root, context.size(), options));
}
void broadcast_into(Context& context, ConstTensorView in, TensorView out, int root, const BroadcastOptions& options) {
  api::run(context, {}, api::broadcast_request({}, in, out, false, root, context.size(), options));
}
Handle broadcast_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out, int root,
                            const BroadcastOptions& options) {
  return Handle(
      api::submit(context, name, api::broadcast_request(name, in, out, false, root, context.size(), options)));
}

void broadcast(TensorView inout, int root, const BroadcastOptions& options) {
  broadcast(current_context(), inout, root, options);
}
void broadcast(std::string_view name, TensorView inout, int root, const BroadcastOptions& options) {
  broadcast(current_context(), name, inout, root, options);
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
Handle broadcast_into_async(std::string_view name, ConstTensorView in, TensorView out, int root,
                            const BroadcastOptions& options) {
  return broadcast_into_async(current_context(), name, in, out, root, options);
}

// ---------------------------------------------------------------- allgather

Tensor allgather(Context& context, ConstTensorView in, const AllgatherOptions& options) {
  return api::run(context, {}, api::allgather_request({}, in, {}, options)).tensor;
}
Tensor allgather(Context& context, std::string_view name, ConstTensorView in, const AllgatherOptions& options) {
  api::check_name(name);
  return api::run(context, name, api::allgather_request(name, in, {}, options)).tensor;
}
Future<Tensor> allgather_async(Context& context, std::string_view name, ConstTensorView in,
                               const AllgatherOptions& options) {
  return Future<Tensor>(api::submit(context, name, api::allgather_request(name, in, {}, options)));
}
void allgather_into(Context& context, ConstTensorView in, TensorView out, const AllgatherOptions& options) {
  api::run(context, {}, api::allgather_request({}, in, out, options));
}
void allgather_into(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                    const AllgatherOptions& options) {
  api::check_name(name);
  api::run(context, name, api::allgather_request(name, in, out, options));
}
Handle allgather_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                            const AllgatherOptions& options) {
  return Handle(api::submit(context, name, api::allgather_request(name, in, out, options)));
}

Tensor allgather(ConstTensorView in, const AllgatherOptions& options) {
  return allgather(current_context(), in, options);
}
Tensor allgather(std::string_view name, ConstTensorView in, const AllgatherOptions& options) {
  return allgather(current_context(), name, in, options);
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
Handle allgather_into_async(std::string_view name, ConstTensorView in, TensorView out,
                            const AllgatherOptions& options) {
  return allgather_into_async(current_context(), name, in, out, options);
}

// ---------------------------------------------------------------- alltoall

namespace {
AlltoallResult taken(api::Result result) { return {std::move(result.tensor), std::move(result.received_splits)}; }
}  // namespace

AlltoallResult alltoall(Context& context, ConstTensorView in, Span<const std::int64_t> splits,
                        const AlltoallOptions& options) {
  return taken(api::run(context, {}, api::alltoall_request({}, in, {}, splits, api::Place(context), options)));
}
AlltoallResult alltoall(Context& context, std::string_view name, ConstTensorView in, Span<const std::int64_t> splits,
                        const AlltoallOptions& options) {
  api::check_name(name);
  return taken(api::run(context, name, api::alltoall_request(name, in, {}, splits, api::Place(context), options)));
}
Future<AlltoallResult> alltoall_async(Context& context, std::string_view name, ConstTensorView in,
                                      Span<const std::int64_t> splits, const AlltoallOptions& options) {
  return Future<AlltoallResult>(
      api::submit(context, name, api::alltoall_request(name, in, {}, splits, api::Place(context), options)));
}
void alltoall_into(Context& context, ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                   const AlltoallOptions& options) {
  api::run(context, {}, api::alltoall_request({}, in, out, splits, api::Place(context), options));
}
void alltoall_into(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                   Span<const std::int64_t> splits, const AlltoallOptions& options) {
  api::check_name(name);
  api::run(context, name, api::alltoall_request(name, in, out, splits, api::Place(context), options));
}
Handle alltoall_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                           Span<const std::int64_t> splits, const AlltoallOptions& options) {
  return Handle(api::submit(context, name, api::alltoall_request(name, in, out, splits, api::Place(context), options)));
}

AlltoallResult alltoall(ConstTensorView in, Span<const std::int64_t> splits, const AlltoallOptions& options) {
  return alltoall(current_context(), in, splits, options);
}
AlltoallResult alltoall(std::string_view name, ConstTensorView in, Span<const std::int64_t> splits,
                        const AlltoallOptions& options) {
  return alltoall(current_context(), name, in, splits, options);
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
Handle alltoall_into_async(std::string_view name, ConstTensorView in, TensorView out, Span<const std::int64_t> splits,
                           const AlltoallOptions& options) {
  return alltoall_into_async(current_context(), name, in, out, splits, options);
}

// ---------------------------------------------------------------- reduce_scatter

Tensor reduce_scatter(Context& context, ConstTensorView in, const ReduceScatterOptions& options) {
  return api::run(context, {}, api::reduce_scatter_request({}, in, {}, api::Place(context), options)).tensor;
}
Tensor reduce_scatter(Context& context, std::string_view name, ConstTensorView in,
                      const ReduceScatterOptions& options) {
  api::check_name(name);
  return api::run(context, name, api::reduce_scatter_request(name, in, {}, api::Place(context), options)).tensor;
}
Future<Tensor> reduce_scatter_async(Context& context, std::string_view name, ConstTensorView in,
                                    const ReduceScatterOptions& options) {
  return Future<Tensor>(
      api::submit(context, name, api::reduce_scatter_request(name, in, {}, api::Place(context), options)));
}
void reduce_scatter_into(Context& context, ConstTensorView in, TensorView out, const ReduceScatterOptions& options) {
  api::run(context, {}, api::reduce_scatter_request({}, in, out, api::Place(context), options));
}
void reduce_scatter_into(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                         const ReduceScatterOptions& options) {
  api::check_name(name);
  api::run(context, name, api::reduce_scatter_request(name, in, out, api::Place(context), options));
}
Handle reduce_scatter_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                                 const ReduceScatterOptions& options) {
  return Handle(api::submit(context, name, api::reduce_scatter_request(name, in, out, api::Place(context), options)));
}

Tensor reduce_scatter(ConstTensorView in, const ReduceScatterOptions& options) {
  return reduce_scatter(current_context(), in, options);
}
Tensor reduce_scatter(std::string_view name, ConstTensorView in, const ReduceScatterOptions& options) {
  return reduce_scatter(current_context(), name, in, options);
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
Handle reduce_scatter_into_async(std::string_view name, ConstTensorView in, TensorView out,
                                 const ReduceScatterOptions& options) {
  return reduce_scatter_into_async(current_context(), name, in, out, options);
}

// ---------------------------------------------------------------- barrier, steps

void barrier(Context& context, const BarrierOptions& options) { api::run(context, {}, api::barrier_request(options)); }
Handle barrier_async(Context& context, std::string_view name, const BarrierOptions& options) {
  return Handle(api::submit(context, name, api::barrier_request(options)));
}
void barrier(const BarrierOptions& options) { barrier(current_context(), options); }
Handle barrier_async(std::string_view name, const BarrierOptions& options) {
  return barrier_async(current_context(), name, options);
}

void end_step(Context& context) { context.impl().engine().end_step(); }
void end_step() { end_step(current_context()); }

}  // namespace kolo
