// SPDX-License-Identifier: Apache-2.0
//
// How an operation becomes a call of the public API, in each of its forms.
#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tests/support/operation.hpp"

namespace kolo::testing {

template <class Options>
Options InFlight::options() const {
  Options options(operation_.op);
  if (operation_.scaled) options.with_prescale(2).with_postscale(1.5);
  options.send_as = operation_.send_as;
  return options;
}

Shape InFlight::shape_of(std::int64_t elements) const {
  const std::int64_t width = operation_.width;
  return width == 1 ? Shape{elements} : Shape{elements / width, width};
}

/// From `data` on, which lies in this memory.
TensorView InFlight::view(const Memory& memory, std::byte* data, std::int64_t elements) const {
  const Shape shape = shape_of(elements);
  std::byte* place = memory.place_of(data);
  if (!accelerator_) return {place, operation_.dtype, shape};
  return {place, operation_.dtype, shape, accelerator_->device(), accelerator_->stream()};
}

TensorView InFlight::input() {
  Memory& own = inputs_[0];
  if (!place_ || outputs_.empty()) return view(own, own.data(), own.elements());
  return view(outputs_[0], outputs_[0].element(*place_), own.elements());
}

TensorView InFlight::output() {
  if (!outputs_.empty()) return view(outputs_[0], outputs_[0].data(), outputs_[0].elements());
  const int rank = kolo::rank(group_);
  Memory& in = inputs_[0];
  if (place_) return view(in, in.element(*place_), length(rank));
  if (operation_.kind != Kind::reduce_scatter_into) return input();
  return view(in, in.element(first_of(rank)), first_of(rank + 1) - first_of(rank));
}

/// Ranks that are not the root give what they have, or nothing.
std::optional<TensorView> InFlight::output_at_root() {
  if (outputs_.empty()) return std::nullopt;
  return output();
}
std::optional<ConstTensorView> InFlight::input_at_root() {
  if (rank(group_) != operation_.root && operation_.salt % 2 != 0) return std::nullopt;
  return input();
}

std::vector<NamedView> InFlight::members() {
  std::vector<NamedView> members;
  for (Memory& input : inputs_) {
    members.push_back({"member " + std::to_string(members.size()), view(input, input.data(), input.elements())});
  }
  return members;
}

std::vector<std::int64_t> InFlight::dealt() const {
  const std::vector<std::int64_t>& all = operation_.lengths;
  const bool even = std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
  return even ? std::vector<std::int64_t>() : all;
}

std::vector<std::int64_t> InFlight::splits() const {
  if (operation_.kind == Kind::alltoall && dealt().empty()) return {};
  const auto own = operation_.lengths.begin() + static_cast<std::ptrdiff_t>(rank(group_)) * size(group_);
  return {own, own + size(group_)};
}

/// What gives no result of its own, but is no group.
Call InFlight::call() {
  const TensorView in = input();
  const TensorView out = output();
  const int root = operation_.root;
  switch (operation_.kind) {
  case Kind::allreduce:
    return Call::allreduce(in, options<AllreduceOptions>());
  case Kind::allreduce_into:
    return Call::allreduce_into(in, out, options<AllreduceOptions>());
  case Kind::broadcast:
    return Call::broadcast(in, root);
  case Kind::broadcast_into:
    return Call::broadcast_into(in, out, root);
  case Kind::allgather_into:
    return Call::allgather_into(in, out);
  case Kind::reduce_scatter_into:
    return Call::reduce_scatter_into(in, out, options<ReduceScatterOptions>());
  case Kind::reduce:
    return Call::reduce(in, root, options<ReduceOptions>());
  case Kind::reduce_into:
    return Call::reduce_into(in, output_at_root(), root, options<ReduceOptions>());
  case Kind::gather_into:
    return Call::gather_into(in, output_at_root(), root);
  case Kind::scatter_into:
    return Call::scatter_into(input_at_root(), out, root, dealt());
  case Kind::alltoall_into:
    return Call::alltoall_into(in, out);
  case Kind::alltoall_splits_into:
    return Call::alltoall_into(in, out, splits());
  default:
    throw std::logic_error("there is no such call as a value");
  }
}

std::vector<Call> InFlight::calls() {
  std::vector<Call> calls{call()};
  for (const auto& one : company_) calls.push_back(one->call());
  return calls;
}

Call InFlight::as_call(std::int64_t salt) {
  operation_.salt = salt;
  fill();
  return call();
}

void InFlight::prepare() {
  const std::string& name = operation_.name;
  if (operation_.form == Form::prepared_group) {
    prepared_ = kolo::prepare({group_, name}, Call::grouped(calls()));
  } else if (operation_.kind == Kind::grouped) {
    prepared_ = kolo::prepare({group_, name}, Call::grouped_allreduce(members(), options<AllreduceOptions>()));
  } else {
    prepared_ = kolo::prepare({group_, name}, call());
  }
}

void InFlight::submit(std::int64_t salt) {
  operation_.salt = salt;
  fill();
  switch (operation_.form) {
  case Form::asynchronous:
    return start();
  case Form::synchronous:
    return run();
  case Form::prepared:
  case Form::prepared_group:
    handle_ = prepared_.start();
    return;
  case Form::grouped:
    return kolo::grouped({group_, operation_.name}, calls());
  case Form::grouped_async:
    handle_ = grouped_async({group_, operation_.name}, calls());
    return;
  }
}

void InFlight::start() {
  const Where where = operation_.name.empty() ? Where(group_) : Where(group_, operation_.name);
  const TensorView in = input();
  const TensorView out = output();
  const int root = operation_.root;
  switch (operation_.kind) {
  case Kind::allreduce:
    handle_ = allreduce_async(where, in, options<AllreduceOptions>());
    break;
  case Kind::allreduce_into:
    handle_ = allreduce_into_async(where, in, out, options<AllreduceOptions>());
    break;
  case Kind::grouped:
    handle_ = grouped_allreduce_async(where, members(), options<AllreduceOptions>());
    break;
  case Kind::broadcast:
    handle_ = broadcast_async(where, in, root);
    break;
  case Kind::broadcast_into:
    handle_ = broadcast_into_async(where, in, out, root);
    break;
  case Kind::allgather:
    gathered_ = allgather_async(where, in);
    break;
  case Kind::allgather_into:
    handle_ = allgather_into_async(where, in, out);
    break;
  case Kind::reduce_scatter:
    gathered_ = reduce_scatter_async(where, in, options<ReduceScatterOptions>());
    break;
  case Kind::reduce_scatter_into:
    handle_ = reduce_scatter_into_async(where, in, out, options<ReduceScatterOptions>());
    break;
  case Kind::reduce:
    handle_ = reduce_async(where, in, root, options<ReduceOptions>());
    break;
  case Kind::reduce_into:
    handle_ = reduce_into_async(where, in, output_at_root(), root, options<ReduceOptions>());
    break;
  case Kind::gather:
    gathered_ = gather_async(where, in, root);
    break;
  case Kind::gather_into:
    handle_ = gather_into_async(where, in, output_at_root(), root);
    break;
  case Kind::scatter_into:
    handle_ = scatter_into_async(where, input_at_root(), out, root, dealt());
    break;
  case Kind::alltoall:
    exchanged_ = alltoall_async(where, in, splits());
    break;
  case Kind::alltoall_into:
    handle_ = alltoall_into_async(where, in, out);
    break;
  case Kind::alltoall_splits_into:
    handle_ = alltoall_into_async(where, in, out, splits());
    break;
  case Kind::barrier:
    handle_ = barrier_async(where);
    break;
  }
}

void InFlight::run() {
  const Where where = operation_.name.empty() ? Where(group_) : Where(group_, operation_.name);
  const TensorView in = input();
  const TensorView out = output();
  const int root = operation_.root;
  switch (operation_.kind) {
  case Kind::allreduce:
    return allreduce(where, in, options<AllreduceOptions>());
  case Kind::allreduce_into:
    return allreduce_into(where, in, out, options<AllreduceOptions>());
  case Kind::grouped:
    return grouped_allreduce(where, members(), options<AllreduceOptions>());
  case Kind::broadcast:
    return broadcast(where, in, root);
  case Kind::broadcast_into:
    return broadcast_into(where, in, out, root);
  case Kind::allgather:
    got_.output = allgather(where, in);
    return;
  case Kind::allgather_into:
    return allgather_into(where, in, out);
  case Kind::reduce_scatter:
    got_.output = reduce_scatter(where, in, options<ReduceScatterOptions>());
    return;
  case Kind::reduce_scatter_into:
    return reduce_scatter_into(where, in, out, options<ReduceScatterOptions>());
  case Kind::reduce:
    return reduce(where, in, root, options<ReduceOptions>());
  case Kind::reduce_into:
    return reduce_into(where, in, output_at_root(), root, options<ReduceOptions>());
  case Kind::gather:
    got_.output = gather(where, in, root);
    return;
  case Kind::gather_into:
    return gather_into(where, in, output_at_root(), root);
  case Kind::scatter_into:
    return scatter_into(where, input_at_root(), out, root, dealt());
  case Kind::alltoall:
    got_ = alltoall(where, in, splits());
    return;
  case Kind::alltoall_into:
    return alltoall_into(where, in, out);
  case Kind::alltoall_splits_into:
    return alltoall_into(where, in, out, splits());
  case Kind::barrier:
    return barrier(where);
  }
}

}  // namespace kolo::testing
