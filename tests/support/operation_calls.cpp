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
    prepared_ = prepare_grouped(group_, name, calls());
  } else if (operation_.kind == Kind::grouped) {
    prepared_ = prepare_grouped_allreduce(group_, name, members(), options<AllreduceOptions>());
  } else if (operation_.kind == Kind::broadcast) {
    prepared_ = prepare_broadcast(group_, name, input(), operation_.root);
  } else if (operation_.kind == Kind::allreduce) {
    prepared_ = prepare_allreduce(group_, name, input(), options<AllreduceOptions>());
  } else {
    prepared_ = kolo::prepare(group_, name, call());
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
    return kolo::grouped(group_, operation_.name, calls());
  case Form::grouped_async:
    handle_ = grouped_async(group_, operation_.name, calls());
    return;
  }
}

/// Makes a call by name, or unnamed.
template <class Make>
auto InFlight::make(Make&& make) {
  if (operation_.name.empty()) return make(group_);
  return make(group_, std::string_view(operation_.name));
}

void InFlight::start() {
  const TensorView in = input();
  const TensorView out = output();
  const int root = operation_.root;
  switch (operation_.kind) {
  case Kind::allreduce:
    handle_ = make([&](const auto&... to) { return allreduce_async(to..., in, options<AllreduceOptions>()); });
    break;
  case Kind::allreduce_into:
    handle_ =
        make([&](const auto&... to) { return allreduce_into_async(to..., in, out, options<AllreduceOptions>()); });
    break;
  case Kind::grouped:
    handle_ =
        make([&](const auto&... to) { return grouped_allreduce_async(to..., members(), options<AllreduceOptions>()); });
    break;
  case Kind::broadcast:
    handle_ = make([&](const auto&... to) { return broadcast_async(to..., in, root); });
    break;
  case Kind::broadcast_into:
    handle_ = make([&](const auto&... to) { return broadcast_into_async(to..., in, out, root); });
    break;
  case Kind::allgather:
    gathered_ = make([&](const auto&... to) { return allgather_async(to..., in); });
    break;
  case Kind::allgather_into:
    handle_ = make([&](const auto&... to) { return allgather_into_async(to..., in, out); });
    break;
  case Kind::reduce_scatter:
    gathered_ =
        make([&](const auto&... to) { return reduce_scatter_async(to..., in, options<ReduceScatterOptions>()); });
    break;
  case Kind::reduce_scatter_into:
    handle_ = make(
        [&](const auto&... to) { return reduce_scatter_into_async(to..., in, out, options<ReduceScatterOptions>()); });
    break;
  case Kind::reduce:
    handle_ = make([&](const auto&... to) { return reduce_async(to..., in, root, options<ReduceOptions>()); });
    break;
  case Kind::reduce_into:
    handle_ = make([&](const auto&... to) {
      return reduce_into_async(to..., in, output_at_root(), root, options<ReduceOptions>());
    });
    break;
  case Kind::gather:
    gathered_ = make([&](const auto&... to) { return gather_async(to..., in, root); });
    break;
  case Kind::gather_into:
    handle_ = make([&](const auto&... to) { return gather_into_async(to..., in, output_at_root(), root); });
    break;
  case Kind::scatter_into:
    handle_ = make([&](const auto&... to) { return scatter_into_async(to..., input_at_root(), out, root, dealt()); });
    break;
  case Kind::alltoall:
    exchanged_ = make([&](const auto&... to) { return alltoall_async(to..., in, splits()); });
    break;
  case Kind::alltoall_into:
    handle_ = make([&](const auto&... to) { return alltoall_into_async(to..., in, out); });
    break;
  case Kind::alltoall_splits_into:
    handle_ = make([&](const auto&... to) { return alltoall_into_async(to..., in, out, splits()); });
    break;
  case Kind::barrier:
    handle_ = make([&](const auto&... to) { return barrier_async(to...); });
    break;
  }
}

void InFlight::run() {
  const TensorView in = input();
  const TensorView out = output();
  const int root = operation_.root;
  switch (operation_.kind) {
  case Kind::allreduce:
    return make([&](const auto&... to) { allreduce(to..., in, options<AllreduceOptions>()); });
  case Kind::allreduce_into:
    return make([&](const auto&... to) { allreduce_into(to..., in, out, options<AllreduceOptions>()); });
  case Kind::grouped:
    return grouped_allreduce(group_, operation_.name, members(), options<AllreduceOptions>());
  case Kind::broadcast:
    return make([&](const auto&... to) { broadcast(to..., in, root); });
  case Kind::broadcast_into:
    return make([&](const auto&... to) { broadcast_into(to..., in, out, root); });
  case Kind::allgather:
    got_.output = make([&](const auto&... to) { return allgather(to..., in); });
    return;
  case Kind::allgather_into:
    return make([&](const auto&... to) { allgather_into(to..., in, out); });
  case Kind::reduce_scatter:
    got_.output = make([&](const auto&... to) { return reduce_scatter(to..., in, options<ReduceScatterOptions>()); });
    return;
  case Kind::reduce_scatter_into:
    return make([&](const auto&... to) { reduce_scatter_into(to..., in, out, options<ReduceScatterOptions>()); });
  case Kind::reduce:
    return make([&](const auto&... to) { reduce(to..., in, root, options<ReduceOptions>()); });
  case Kind::reduce_into:
    return make([&](const auto&... to) { reduce_into(to..., in, output_at_root(), root, options<ReduceOptions>()); });
  case Kind::gather:
    got_.output = make([&](const auto&... to) { return gather(to..., in, root); });
    return;
  case Kind::gather_into:
    return make([&](const auto&... to) { gather_into(to..., in, output_at_root(), root); });
  case Kind::scatter_into:
    return make([&](const auto&... to) { scatter_into(to..., input_at_root(), out, root, dealt()); });
  case Kind::alltoall:
    got_ = make([&](const auto&... to) { return alltoall(to..., in, splits()); });
    return;
  case Kind::alltoall_into:
    return make([&](const auto&... to) { alltoall_into(to..., in, out); });
  case Kind::alltoall_splits_into:
    return make([&](const auto&... to) { alltoall_into(to..., in, out, splits()); });
  case Kind::barrier:
    return barrier(group_);
  }
}

}  // namespace kolo::testing
