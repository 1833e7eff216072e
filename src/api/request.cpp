// SPDX-License-Identifier: Apache-2.0
#include "api/request.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "api/context_impl.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "core/dtype.hpp"
#include "core/reduce_op.hpp"

namespace kolo::api {
namespace {

/// A shape of at least one dimension without its first.
Shape row_of(const Shape& shape) { return {shape.begin() + 1, shape.rank() - 1}; }

Shape with_rows(std::int64_t rows, const Shape& row) {
  std::int64_t extents[Shape::kMaxRank + 1] = {rows};
  std::copy(row.begin(), row.end(), extents + 1);
  return {extents, row.rank() + 1};
}

/// A GPU reads aligned elements only. Collectives that move data without reducing it move bytes.
void check_aligned(core::CollectiveKind kind, std::string_view name, const ConstTensorView& view) {
  if (view.device().kind == DeviceKind::cpu || !core::traits_of(kind).reduces) return;
  const std::size_t size = size_of(view.dtype());
  if (reinterpret_cast<std::uintptr_t>(view.data()) % size == 0) return;
  refuse(kind, name,
         "its tensor's address is not a multiple of " + std::to_string(size) + " bytes, the size of " +
             std::string(to_string(view.dtype())) + "; a GPU reduces aligned elements only");
}

/// Notes where a tensor of the request lies; all lie in one place.
void locate(Request& request, std::string_view name, const ConstTensorView& view) {
  if (request.located && view.device() != request.device) {
    refuse(request.signature.kind, name,
           "its tensors lie on " + to_string(request.device) + " and on " + to_string(view.device()) +
               "; all tensors of a call must be in one place");
  }
  request.located = true;
  request.device = view.device();
  request.signature.device = view.device().kind;
  check_aligned(request.signature.kind, name, view);
  if (view.device().kind == DeviceKind::cpu || !view.stream()) return;
  const auto same = [&](const Stream& stream) { return stream.native == view.stream()->native; };
  if (std::none_of(request.streams.begin(), request.streams.end(), same)) request.streams.push_back(*view.stream());
}

/// Calls without a name have an order.
int priority_of(std::string_view name, int priority) { return name.empty() ? 0 : priority; }

/// A tensor of the request, with its output.
void add_tensor(Request& request, std::string_view name, const ConstTensorView& in, const ConstTensorView& out) {
  locate(request, name, in);
  request.signature.tensors.push_back({in.dtype(), in.shape()});
  locate(request, name, out);
}

/// Input and output, where the output may be the caller's or, without one, our own: those lie in the CPU's memory.
void locate_result(Request& request, std::string_view name, const ConstTensorView& in,
                   const std::optional<TensorView>& out) {
  locate(request, name, in);
  if (out) locate(request, name, *out);
  if (out || !request.room.is_wanted || request.device.kind == DeviceKind::cpu) return;
  refuse(request.signature.kind, name,
         "its input lies on " + to_string(request.device) +
             ", where the call that returns its result does not work; use the call with _into, and give the output",
         ErrorCode::unsupported);
}

}  // namespace

core::Wire wire_of(const AllreduceOptions& options) noexcept {
  if (!options.send_as) return core::Wire::own;
  return *options.send_as == DType::float16 ? core::Wire::float16 : core::Wire::bfloat16;
}

core::Signature reduction_signature(core::CollectiveKind kind, const AllreduceOptions& options) {
  core::Signature signature;
  signature.kind = kind;
  signature.op = options.op;
  signature.prescale = options.prescale;
  signature.postscale = options.postscale;
  signature.wire = wire_of(options);
  return signature;
}

Request tensor_request(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in,
                       const TensorView& out, bool in_place, const AllreduceOptions& options, const Root& root) {
  check_tensors(kind, name, in, out, in_place, options);
  if (core::traits_of(kind).rooted) check_root(kind, name, root);
  Request request;
  request.signature = reduction_signature(kind, options);
  request.signature.root = root.rank;
  request.signature.priority = priority_of(name, options.priority);
  add_tensor(request, name, in, out);
  request.buffers.push_back(buffer_of(in, out.data()));
  request.timeout = options.timeout;
  return request;
}

Request allreduce_request(std::string_view name, const ConstTensorView& in, const TensorView& out, bool in_place,
                          const AllreduceOptions& options) {
  return tensor_request(core::CollectiveKind::allreduce, name, in, out, in_place, options);
}

Request grouped_allreduce_request(std::string_view group, Span<const NamedView> members,
                                  const AllreduceOptions& options) {
  const auto kind = core::CollectiveKind::allreduce;
  if (members.empty()) refuse(kind, group, "a grouped call needs at least one member");
  Request request;
  request.signature = reduction_signature(kind, options);
  request.signature.priority = priority_of(group, options.priority);
  request.signature.tensors.reserve(members.size());
  request.buffers.reserve(members.size());
  request.members = members;
  request.signature.members = base::kHashSeed;
  for (const NamedView& member : members) {
    request.signature.members = base::hash_text_quickly(member.name, request.signature.members);
    check_view(kind, member.name, "tensor", member.view);
    check_reduction(kind, member.name, member.view.dtype(), options);
    add_tensor(request, group, member.view, member.view);
    request.buffers.push_back(buffer_of(member.view, member.view.data()));
  }
  check_members(group, members);
  request.timeout = checked_timeout(kind, group, options.timeout);
  return request;
}

void name_members(std::string_view group, Request& request) {
  std::vector<std::string> names;
  names.reserve(request.members.size());
  for (const NamedView& member : request.members) names.push_back(member.name);
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    refuse(request.signature.kind, group,
           "two of its members are named " + base::quoted(*twice) + "; names within a grouped call must differ");
  }
  request.signature.names = std::move(names);
}

Request broadcast_request(std::string_view name, const ConstTensorView& in, const TensorView& out, bool in_place,
                          int root, int size, const BroadcastOptions& options) {
  AllreduceOptions timed;
  timed.timeout = options.timeout;
  timed.priority = options.priority;
  return tensor_request(core::CollectiveKind::broadcast, name, in, out, in_place, timed, {root, size});
}

Request gather_request(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in,
                       const std::optional<TensorView>& out, std::optional<std::chrono::nanoseconds> timeout,
                       int priority, const Root& root) {
  const bool rooted = core::traits_of(kind).rooted;
  if (rooted) check_root(kind, name, root);
  bool in_place = false;
  if (out) {
    check_types(kind, name, in, *out);
    in_place = is_inside(in, *out);
    if (!in_place) check_apart(kind, name, in, *out, "give an output of its own");
  } else {
    check_view(kind, name, "input", in);
  }
  Request request;
  request.room.row = in.shape().rank() == 0 ? Shape{} : row_of(in.shape());
  if (request.room.row.elements() == 0) {
    refuse(kind, name,
           "its rows, of shape " + to_string(request.room.row) + ", have no elements; nothing can be gathered");
  }
  request.room.row_bytes = request.room.row.elements() * static_cast<std::int64_t>(size_of(in.dtype()));
  request.room.owns_result = !out;
  request.room.output_elements = out ? out->elements() : 0;
  request.room.is_wanted = !rooted || root.is_here();
  request.room.rank = root.self;
  if (in_place)
    request.room.input_at = static_cast<const std::byte*>(in.data()) - static_cast<const std::byte*>(out->data());
  request.signature.kind = kind;
  request.signature.root = root.rank;
  request.signature.priority = priority_of(name, priority);
  request.signature.tensors.push_back({in.dtype(), request.room.row});
  locate_result(request, name, in, out);
  request.buffers.push_back(buffer_of(in, out ? out->data() : nullptr));
  request.timeout = checked_timeout(kind, name, timeout);
  if (!out && !request.room.is_wanted)
    request.room.make_result(in.dtype(), with_rows(0, request.room.row), subject(kind, name));
  return request;
}

Request allgather_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                          const Group& group, const AllgatherOptions& options) {
  const Root self{0, 1, kolo::rank(group)};
  return gather_request(core::CollectiveKind::allgather, name, in, out, options.timeout, options.priority, self);
}

namespace {

Request alltoall_with_splits(const ConstTensorView& in, const std::optional<TensorView>& out,
                             Span<const std::int64_t> splits) {
  Request request;
  request.room.row = row_of(in.shape());
  request.room.owns_result = !out;
  request.room.output_elements = out ? out->elements() : 0;
  request.signature.kind = core::CollectiveKind::alltoall_splits;
  request.signature.tensors.push_back({in.dtype(), request.room.row});
  request.buffers.push_back(buffer_of(in, out ? out->data() : nullptr));
  request.splits.assign(splits.begin(), splits.end());
  return request;
}

/// A result of known size: the caller's memory, or our own.
void* output_of(Request& request, std::string_view name, const std::optional<TensorView>& out, DType dtype,
                const Shape& shape) {
  if (out) return out->data();
  request.room.owns_result = true;
  return request.room.make_result(dtype, shape, subject(request.signature.kind, name));
}

}  // namespace

Request alltoall_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                         Span<const std::int64_t> splits, const RankAndSize& self, const AlltoallOptions& options) {
  const auto kind = splits.empty() ? core::CollectiveKind::alltoall : core::CollectiveKind::alltoall_splits;
  if (out) {
    check_types(kind, name, in, *out);
    check_apart(kind, name, in, *out, "give an output of its own");
  } else {
    check_view(kind, name, "input", in);
  }
  check_splits(kind, name, in.shape(), splits, self.size);
  Request request;
  if (!splits.empty()) {
    request = alltoall_with_splits(in, out, splits);
  } else {
    if (out && out->elements() != in.elements()) {
      refuse(kind, name,
             "the input has " + std::to_string(in.elements()) + " elements, but the output has " +
                 std::to_string(out->elements()) + "; they must agree");
    }
    request.received_splits.assign(static_cast<std::size_t>(self.size), in.shape()[0] / self.size);
    request.signature.kind = kind;
    request.signature.tensors.push_back({in.dtype(), in.shape()});
    request.buffers.push_back(buffer_of(in, output_of(request, name, out, in.dtype(), in.shape())));
  }
  request.signature.priority = priority_of(name, options.priority);
  locate_result(request, name, in, out);
  request.timeout = checked_timeout(kind, name, options.timeout);
  return request;
}

Request reduce_scatter_request(std::string_view name, const ConstTensorView& in, const std::optional<TensorView>& out,
                               const RankAndSize& self, const ReduceScatterOptions& options) {
  const auto kind = core::CollectiveKind::reduce_scatter;
  AllreduceOptions reduction = AllreduceOptions(options.op).with_prescale(options.prescale);
  reduction.postscale = options.postscale;
  reduction.send_as = options.send_as;
  check_view(kind, name, "input", in);
  check_reduction(kind, name, in.dtype(), reduction);
  if (in.shape().rank() == 0) refuse(kind, name, "a scalar has no rows; give a tensor of at least one dimension");
  const data::RowsOf rows(in.shape()[0], self.rank, self.size);
  const Shape row = row_of(in.shape());
  const Shape mine = with_rows(rows.count, row);
  if (out) {
    check_types(kind, name, in, *out);
    if (out->elements() != mine.elements()) {
      refuse(kind, name,
             "the output has shape " + to_string(out->shape()) + ", but rank " + std::to_string(self.rank) +
                 "'s part of the input's " + to_string(in.shape()) + " is " + to_string(mine));
    }
    const auto offset = rows.begin * row.elements() * static_cast<std::int64_t>(size_of(in.dtype()));
    if (static_cast<const std::byte*>(in.data()) + offset != out->data())
      check_apart(kind, name, in, *out, "give an output of its own, or exactly this rank's rows of the input");
  }
  Request request;
  request.signature = reduction_signature(kind, reduction);
  request.signature.priority = priority_of(name, options.priority);
  request.signature.tensors.push_back({in.dtype(), in.shape()});
  request.buffers.push_back(buffer_of(in, output_of(request, name, out, in.dtype(), mine)));
  locate_result(request, name, in, out);
  request.timeout = checked_timeout(kind, name, options.timeout);
  return request;
}

namespace {

/// The root's part of a scatter: what it sends to whom.
void add_scattered(Request& request, std::string_view name, const std::optional<ConstTensorView>& in,
                   const TensorView& out, Span<const std::int64_t> splits, const Root& root) {
  const auto kind = core::CollectiveKind::scatter;
  if (!in)
    refuse(kind, name, "rank " + std::to_string(root.rank) + " is the root, whose rows are dealt out; give an input");
  check_types(kind, name, *in, out);
  check_splits(kind, name, in->shape(), splits, root.ranks);
  const Shape row = row_of(in->shape());
  if (row != request.room.row) {
    refuse(kind, name,
           "the input has rows of shape " + to_string(row) + ", but the output has rows of " +
               to_string(request.room.row) + "; they must agree");
  }
  if (splits.empty()) {
    request.splits.assign(static_cast<std::size_t>(root.ranks), in->shape()[0] / root.ranks);
  } else {
    request.splits.assign(splits.begin(), splits.end());
  }
  const auto before = std::accumulate(request.splits.begin(), request.splits.begin() + root.rank, std::int64_t{0});
  const std::int64_t place = before * row.elements() * static_cast<std::int64_t>(size_of(in->dtype()));
  if (static_cast<const std::byte*>(in->data()) + place != out.data())
    check_apart(kind, name, *in, out, "give an output of its own, or exactly this rank's rows of the input");
  locate(request, name, *in);
  request.buffers.push_back(buffer_of(*in, out.data()));
}

}  // namespace

Request scatter_request(std::string_view name, const std::optional<ConstTensorView>& in, const TensorView& out,
                        Span<const std::int64_t> splits, const Root& root, const ScatterOptions& options) {
  const auto kind = core::CollectiveKind::scatter;
  check_root(kind, name, root);
  check_view(kind, name, "output", out);
  Request request;
  request.room.row = out.shape().rank() == 0 ? Shape{} : row_of(out.shape());
  request.room.output_elements = out.elements();
  request.signature.kind = kind;
  request.signature.root = root.rank;
  request.signature.priority = priority_of(name, options.priority);
  request.signature.tensors.push_back({out.dtype(), request.room.row});
  locate(request, name, out);
  if (root.is_here()) {
    add_scattered(request, name, in, out, splits, root);
  } else {
    request.splits.assign(static_cast<std::size_t>(root.ranks), 0);
    request.buffers.push_back({nullptr, static_cast<std::byte*>(out.data()), 0});
  }
  request.timeout = checked_timeout(kind, name, options.timeout);
  return request;
}

Request barrier_request(const BarrierOptions& options) {
  Request request;
  request.signature.kind = core::CollectiveKind::barrier;
  request.timeout = checked_timeout(core::CollectiveKind::barrier, {}, options.timeout);
  return request;
}

}  // namespace kolo::api
