// SPDX-License-Identifier: Apache-2.0
//
// The calls of include/kolo/collectives.hpp: each checks (request.hpp) and submits. Those without a context use the
// thread's.
#include <kolo/collectives.hpp>

#include "api/context_impl.hpp"
#include "api/request.hpp"

namespace kolo {

// ---------------------------------------------------------------- allreduce

void allreduce(Context& context, std::string_view name, TensorView inout, const AllreduceOptions& options) {
  api::check_name(name);
  api::run(context, name, api::allreduce_request(name, inout, inout, true, options));
}
void allreduce(Context& context, TensorView inout, const AllreduceOptions& options) {
  api::run(context, {}, api::allreduce_request({}, inout, inout, true, options));
}
void allreduce_into(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                    const AllreduceOptions& options) {
  api::check_name(name);
  api::run(context, name, api::allreduce_request(name, in, out, false, options));
}
void allreduce_into(Context& context, ConstTensorView in, TensorView out, const AllreduceOptions& options) {
  api::run(context, {}, api::allreduce_request({}, in, out, false, options));
}
Handle allreduce_async(Context& context, std::string_view name, TensorView inout, const AllreduceOptions& options) {
  return Handle(api::submit(context, name, api::allreduce_request(name, inout, inout, true, options)));
}
Handle allreduce_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                            const AllreduceOptions& options) {
  return Handle(api::submit(context, name, api::allreduce_request(name, in, out, false, options)));
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
  return allreduce_async(current_context(), name, inout, options);
}
Handle allreduce_into_async(std::string_view name, ConstTensorView in, TensorView out,
                            const AllreduceOptions& options) {
  return allreduce_into_async(current_context(), name, in, out, options);
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

void broadcast(Context& context, std::string_view name, TensorView inout, int root, const CallOptions& options) {
  api::check_name(name);
  api::run(context, name, api::broadcast_request(name, inout, inout, true, root, context.size(), options));
}
void broadcast(Context& context, TensorView inout, int root, const CallOptions& options) {
  api::run(context, {}, api::broadcast_request({}, inout, inout, true, root, context.size(), options));
}
Handle broadcast_async(Context& context, std::string_view name, TensorView inout, int root,
                       const CallOptions& options) {
  return Handle(
      api::submit(context, name, api::broadcast_request(name, inout, inout, true, root, context.size(), options)));
}
Handle broadcast_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out, int root,
                            const CallOptions& options) {
  return Handle(
      api::submit(context, name, api::broadcast_request(name, in, out, false, root, context.size(), options)));
}

void broadcast(TensorView inout, int root, const CallOptions& options) {
  broadcast(current_context(), inout, root, options);
}
void broadcast(std::string_view name, TensorView inout, int root, const CallOptions& options) {
  broadcast(current_context(), name, inout, root, options);
}
Handle broadcast_async(std::string_view name, TensorView inout, int root, const CallOptions& options) {
  return broadcast_async(current_context(), name, inout, root, options);
}
Handle broadcast_into_async(std::string_view name, ConstTensorView in, TensorView out, int root,
                            const CallOptions& options) {
  return broadcast_into_async(current_context(), name, in, out, root, options);
}

// ---------------------------------------------------------------- allgather

Tensor allgather(Context& context, ConstTensorView in, const CallOptions& options) {
  return std::move(api::run(context, {}, api::allgather_request({}, in, {}, options))->result);
}
Tensor allgather(Context& context, std::string_view name, ConstTensorView in, const CallOptions& options) {
  api::check_name(name);
  return std::move(api::run(context, name, api::allgather_request(name, in, {}, options))->result);
}
Future<Tensor> allgather_async(Context& context, std::string_view name, ConstTensorView in,
                               const CallOptions& options) {
  return Future<Tensor>(api::submit(context, name, api::allgather_request(name, in, {}, options)));
}
Handle allgather_into_async(Context& context, std::string_view name, ConstTensorView in, TensorView out,
                            const CallOptions& options) {
  return Handle(api::submit(context, name, api::allgather_request(name, in, out, options)));
}

Tensor allgather(ConstTensorView in, const CallOptions& options) { return allgather(current_context(), in, options); }
Tensor allgather(std::string_view name, ConstTensorView in, const CallOptions& options) {
  return allgather(current_context(), name, in, options);
}
Future<Tensor> allgather_async(std::string_view name, ConstTensorView in, const CallOptions& options) {
  return allgather_async(current_context(), name, in, options);
}
Handle allgather_into_async(std::string_view name, ConstTensorView in, TensorView out, const CallOptions& options) {
  return allgather_into_async(current_context(), name, in, out, options);
}

// ---------------------------------------------------------------- barrier, steps

void barrier(Context& context, const CallOptions& options) { api::run(context, {}, api::barrier_request(options)); }
Handle barrier_async(Context& context, std::string_view name, const CallOptions& options) {
  return Handle(api::submit(context, name, api::barrier_request(options)));
}
void barrier(const CallOptions& options) { barrier(current_context(), options); }
Handle barrier_async(std::string_view name, const CallOptions& options) {
  return barrier_async(current_context(), name, options);
}

void end_step(Context& context) { context.impl().engine().end_step(); }
void end_step() { end_step(current_context()); }

}  // namespace kolo
