// SPDX-License-Identifier: Apache-2.0
#include "api/request.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
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

constexpr std::size_t kLongestName = 64 << 10;
constexpr std::string_view kReserved = "kolo.";

/// "allreduce of \"w\"", "unnamed allreduce".
std::string subject(core::CollectiveKind kind, std::string_view name) {
  const std::string what(core::to_string(kind));
  return name.empty() ? "unnamed " + what : what + " of " + base::quoted(name);
}

[[noreturn]] void refuse(core::CollectiveKind kind, std::string_view name, const std::string& why,
                         ErrorCode code = ErrorCode::invalid_argument) {
  throw Error(code, subject(kind, name) + ": " + why);
}

// Every call makes these checks, so they are inline. Their error messages are not.

[[noreturn, gnu::noinline]] void refuse_number(core::CollectiveKind kind, std::string_view name, const char* what,
                                               unsigned value, unsigned last) {
  refuse(kind, name,
         std::string("its ") + what + " is number " + std::to_string(value) +
             ", which does not exist; the last one is " + std::to_string(last));
}

[[noreturn, gnu::noinline]] void refuse_null(core::CollectiveKind kind, std::string_view name, const char* which,
                                             const Shape& shape) {
  refuse(kind, name,
         std::string("the ") + which + " is a null pointer, but its shape " + to_string(shape) + " has " +
             std::to_string(shape.elements()) + " elements; give the address of the first");
}

/// A cast may have made any number a value of an enum.
template <class Enum>
inline void check_known(core::CollectiveKind kind, std::string_view name, const char* what, Enum value, Enum last) {
  if (value > last) refuse_number(kind, name, what, static_cast<unsigned>(value), static_cast<unsigned>(last));
}

template <class View>
inline void check_view(core::CollectiveKind kind, std::string_view name, const char* which, const View& view) {
  check_known(kind, name, "dtype", view.dtype(), core::kLastDType);
  check_known(kind, name, "device kind", view.device().kind, DeviceKind::cuda);
  if (view.data() == nullptr && view.elements() > 0) refuse_null(kind, name, which, view.shape());
}

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && first < second + static_cast<std::uintptr_t>(b_bytes) &&
         second < first + static_cast<std::uintptr_t>(a_bytes);
}

/// Whether some of the output is all of the input.
bool is_inside(const ConstTensorView& in, const TensorView& out) {
  const auto* input = static_cast<const std::byte*>(in.data());
  const auto* output = static_cast<const std::byte*>(out.data());
  return in.bytes() > 0 && input >= output && input + in.bytes() <= output + out.bytes();
}

/// The views of an `_into` call that may differ in shape.
void check_types(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in, const TensorView& out) {
  check_view(kind, name, "input", in);
  check_view(kind, name, "output", out);
  if (in.dtype() != out.dtype()) {
    refuse(kind, name,
           "the input is " + std::string(to_string(in.dtype())) + ", but the output is " +
               std::string(to_string(out.dtype())) + "; they must agree");
  }
}

void check_apart(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in, const TensorView& out,
                 const char* remedy) {
  if (overlap(in.data(), in.bytes(), out.data(), out.bytes())) {
    refuse(kind, name, std::string("the input and the output overlap; ") + remedy);
  }
}

void check_pair(core::CollectiveKind kind, std::string_view name, const ConstTensorView& in, const TensorView& out) {
  check_types(kind, name, in, out);
  if (in.shape() != out.shape()) {
    refuse(kind, name,
           "the input has shape " + to_string(in.shape()) + ", but the output has " + to_string(out.shape()) +
               "; they must agree");
  }
  check_apart(kind, name, in, out, "use the call without _into to work in place, or give an output of its own");
}

/// Of options that have been checked.
core::Wire wire_of(const AllreduceOptions& options) noexcept {
  if (!options.send_as) return core::Wire::own;
  return *options.send_as == DType::float16 ? core::Wire::float16 : core::Wire::bfloat16;
}

void check_send_as(core::CollectiveKind kind, std::string_view name, DType dtype, DType send_as) {
  check_known(kind, name, "send_as", send_as, core::kLastDType);
  const std::string type(to_string(dtype)), sent(to_string(send_as));
  if (send_as != DType::float16 && send_as != DType::bfloat16) {
    refuse(kind, name, "send_as is " + sent + "; only float16 and bfloat16 make sense");
  }
  if (!is_floating_point(dtype)) {
    refuse(kind, name, type + " cannot be sent as " + sent + "; send_as needs a floating-point type");
  }
  if (!core::traits_of(kind).converts) {
    refuse(kind, name, "its elements travel as they are; leave out send_as", ErrorCode::unsupported);
  }
}

void check_reduction(core::CollectiveKind kind, std::string_view name, DType dtype, const AllreduceOptions& options) {
  check_known(kind, name, "op", options.op, core::kLastReduceOp);
  if (!is_floating_point(dtype)) {
    const std::string type(to_string(dtype));
    if (options.op == ReduceOp::average) {
      refuse(kind, name,
             "the average of " + type + " is not defined; use ReduceOp::sum and divide, or a floating-point type");
    }
    if (options.prescale != 1.0 || options.postscale != 1.0) {
      refuse(kind, name,
             type + " cannot be scaled by " + std::to_string(options.prescale) + " and " +
                 std::to_string(options.postscale) + "; prescale and postscale need a floating-point type");
    }
  }
  if (is_floating_point(dtype) && core::is_bitwise(options.op)) {
    refuse(kind, name,
           std::string(to_string(options.op)) + " of " + std::string(to_string(dtype)) +
               " is not defined; use it with integers or booleans");
  }
  if (!std::isfinite(options.prescale) || !std::isfinite(options.postscale)) {
    refuse(kind, name, "prescale and postscale must be finite numbers");
  }
  if (options.send_as) check_send_as(kind, name, dtype, *options.send_as);
}

/// The call's own deadline, or none.
std::optional<std::chrono::nanoseconds> checked_timeout(core::CollectiveKind kind, std::string_view name,
                                                        std::optional<std::chrono::nanoseconds> timeout) {
  if (timeout && *timeout <= std::chrono::nanoseconds::zero()) {
    refuse(kind, name,
           "its timeout is " + std::to_string(timeout->count()) +
               " ns; give a time greater than zero, or none for KOLO_TIMEOUT_S");
  }
  return timeout;
}

/// A shape of at least one dimension without its first.
Shape row_of(const Shape& shape) { return {shape.begin() + 1, shape.rank() - 1}; }

Shape with_rows(std::int64_t rows, const Shape& row) {
  std::vector<std::int64_t> extents{rows};
  extents.insert(extents.end(), row.begin(), row.end());
  return Shape(extents);
}

/// A GPU reads aligned elements only. Collectives that move data without reducing it move bytes.
void check_aligned(core::CollectiveKind kind, std::string_view name, const ConstTensorView& view) {
  const std::size_t size = size_of(view.dtype());
  if (view.device().kind == DeviceKind::cpu || !core::traits_of(kind).reduces) return;
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

/// What an all-reduce of tensors that are not in the CPU's memory cannot do.
void check_sent_from(const Request& request, std::string_view name) {
  if (request.signature.wire == core::Wire::own || request.device.kind == DeviceKind::cpu) return;
  refuse(request.signature.kind, name,
         "its tensors lie on " + to_string(request.device) + "; send_as works in CPU memory only",
         ErrorCode::unsupported);
}

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

template <class View>
engine::Buffer buffer_of(const View& in, void* out) {
  return {static_cast<const std::byte*>(in.data()), static_cast<std::byte*>(out), in.elements()};
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

/// Members of a group are written independently of one another: none may overlap.
void check_members(std::string_view group, Span<const NamedView> members) {
  const auto kind = core::CollectiveKind::allreduce;
  const auto before = [](const NamedView* a, const NamedView* b) { return a->view.data() < b->view.data(); };
  std::vector<const NamedView*> sorted;
  sorted.reserve(members.size());
  for (const NamedView& member : members) sorted.push_back(&member);
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) std::sort(sorted.begin(), sorted.end(), before);
  const NamedView* last = nullptr;
  for (const NamedView* member : sorted) {
    if (member->view.elements() == 0) continue;
    if (last != nullptr && overlap(last->view.data(), last->view.bytes(), member->view.data(), member->view.bytes())) {
      refuse(kind, group,
             "its members " + base::quoted(last->name) + " and " + base::quoted(member->name) +
                 " overlap; give each memory of its own");
    }
    last = member;
  }
}

/// What a call gets whose output has the shape of its input.
template <class View>
void check_tensors(core::CollectiveKind kind, std::string_view name, const View& in, const TensorView& out,
                   bool in_place, const AllreduceOptions& options) {
  if (in_place) {
    check_view(kind, name, "tensor", in);
  } else {
    check_pair(kind, name, in, out);
  }
  if (core::traits_of(kind).reduces) check_reduction(kind, name, in.dtype(), options);
  checked_timeout(kind, name, options.timeout);
}

void check_root(core::CollectiveKind kind, std::string_view name, const Root& root) {
  if (root.rank >= 0 && root.rank < root.ranks) return;
  refuse(kind, name,
         "there is no root rank " + std::to_string(root.rank) + "; a root is a rank of the group, 0 to " +
             std::to_string(root.ranks - 1));
}

}  // namespace

Request tensor_request(core::CollectiveKind kind, std::string_view name, ConstTensorView in, TensorView out,
                       bool in_place, const AllreduceOptions& options, const Root& root) {
  check_tensors(kind, name, in, out, in_place, options);
  if (core::traits_of(kind).rooted) check_root(kind, name, root);
  Request request;
  request.signature = reduction_signature(kind, options);
  request.signature.root = root.rank;
  add_tensor(request, name, in, out);
  check_sent_from(request, name);
  request.buffers.push_back(buffer_of(in, out.data()));
  request.timeout = options.timeout;
  return request;
}

Request allreduce_request(std::string_view name, ConstTensorView in, TensorView out, bool in_place,
                          const AllreduceOptions& options) {
  return tensor_request(core::CollectiveKind::allreduce, name, in, out, in_place, options);
}

Request grouped_allreduce_request(std::string_view group, Span<const NamedView> members,
                                  const AllreduceOptions& options) {
  const auto kind = core::CollectiveKind::allreduce;
  if (members.empty()) refuse(kind, group, "a grouped call needs at least one member");
  Request request;
  request.signature = reduction_signature(kind, options);
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
  check_sent_from(request, group);
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

Request broadcast_request(std::string_view name, ConstTensorView in, TensorView out, bool in_place, int root, int size,
                          const BroadcastOptions& options) {
  AllreduceOptions timed;
  timed.timeout = options.timeout;
  return tensor_request(core::CollectiveKind::broadcast, name, in, out, in_place, timed, {root, size});
}

void check_output_at_root(core::CollectiveKind kind, std::string_view name, const std::optional<TensorView>& out,
                          const Root& root) {
  if (out || !root.is_here()) return;
  refuse(kind, name, "rank " + std::to_string(root.rank) + " is the root, and gets the result; give an output");
}

Request gather_request(core::CollectiveKind kind, std::string_view name, ConstTensorView in,
                       const std::optional<TensorView>& out, std::optional<std::chrono::nanoseconds> timeout,
                       const Root& root) {
  const bool rooted = core::traits_of(kind).rooted;
  if (rooted) check_root(kind, name, root);
  if (out) {
    check_types(kind, name, in, *out);
    if (!is_inside(in, *out)) check_apart(kind, name, in, *out, "give an output of its own");
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
  if (out && is_inside(in, *out))
    request.room.input_at = static_cast<const std::byte*>(in.data()) - static_cast<const std::byte*>(out->data());
  request.signature.kind = kind;
  request.signature.root = root.rank;
  request.signature.tensors.push_back({in.dtype(), request.room.row});
  locate_result(request, name, in, out);
  request.buffers.push_back(buffer_of(in, out ? out->data() : nullptr));
  request.timeout = checked_timeout(kind, name, timeout);
  if (!out && !request.room.is_wanted)
    request.room.make_result(in.dtype(), with_rows(0, request.room.row), subject(kind, name));
  return request;
}

Request allgather_request(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                          const Group& group, const AllgatherOptions& options) {
  return gather_request(core::CollectiveKind::allgather, name, in, out, options.timeout, {0, 1, kolo::rank(group)});
}

namespace {

/// What an alltoall needs to know of its splits, and what may be wrong with them.
void check_splits(core::CollectiveKind kind, std::string_view name, const Shape& shape, Span<const std::int64_t> splits,
                  int size) {
  if (shape.rank() == 0) refuse(kind, name, "a scalar has no rows to send; give a tensor of at least one dimension");
  const std::int64_t rows = shape[0];
  if (splits.empty()) {
    if (rows % size == 0) return;
    refuse(kind, name,
           "its " + std::to_string(rows) + " rows cannot be divided evenly among " + std::to_string(size) +
               " ranks; give splits");
  }
  if (splits.size() != static_cast<std::size_t>(size)) {
    refuse(kind, name,
           std::to_string(splits.size()) + " splits were given for " + std::to_string(size) +
               " ranks; give one for each");
  }
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    if (split < 0) refuse(kind, name, "a split is " + std::to_string(split) + "; they must not be negative");
    if (__builtin_add_overflow(sum, split, &sum)) sum = -1;
    if (sum < 0) break;
  }
  if (sum != rows) {
    refuse(kind, name,
           "the splits sum up to " + (sum < 0 ? "more than any tensor's rows" : std::to_string(sum)) +
               ", but the input has " + std::to_string(rows) + " rows; all of them must go somewhere");
  }
}

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

Request alltoall_request(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
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
  locate_result(request, name, in, out);
  request.timeout = checked_timeout(kind, name, options.timeout);
  return request;
}

Request reduce_scatter_request(std::string_view name, ConstTensorView in, const std::optional<TensorView>& out,
                               const RankAndSize& self, const ReduceScatterOptions& options) {
  const auto kind = core::CollectiveKind::reduce_scatter;
  const AllreduceOptions reduction =
      AllreduceOptions(options.op).with_prescale(options.prescale).with_postscale(options.postscale);
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

Request scatter_request(std::string_view name, const std::optional<ConstTensorView>& in, TensorView out,
                        Span<const std::int64_t> splits, const Root& root, const ScatterOptions& options) {
  const auto kind = core::CollectiveKind::scatter;
  check_root(kind, name, root);
  check_view(kind, name, "output", out);
  Request request;
  request.room.row = out.shape().rank() == 0 ? Shape{} : row_of(out.shape());
  request.room.output_elements = out.elements();
  request.signature.kind = kind;
  request.signature.root = root.rank;
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

void check_name(std::string_view name) {
  if (name.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "this call needs a name: give every tensor one of its own, the same on all ranks");
  }
  if (name.substr(0, kReserved.size()) == kReserved) {
    throw Error(ErrorCode::invalid_argument,
                "the name " + base::quoted(name) + " is reserved: names that begin with \"kolo.\" are Kolo's own");
  }
  if (name.size() > kLongestName) {
    throw Error(ErrorCode::invalid_argument, "a name of " + std::to_string(name.size()) +
                                                 " bytes is too long; the longest has " + std::to_string(kLongestName));
  }
}

void settle_device(const Group& group, std::string_view name, Request& request) {
  if (request.device.kind == DeviceKind::cpu) return;
  const engine::Engine& engine = group.impl().engine();
  const std::string where = "the tensor lies on " + to_string(request.device) + ", but ";
  if (engine.device() == nullptr) {
    refuse(request.signature.kind, name,
           where + "no CUDA device can be used: this build has no CUDA part; give memory of the CPU",
           ErrorCode::unsupported);
  }
  try {
    engine.device()->check_usable(request.device, request.signature);
  } catch (const Error& error) {
    refuse(request.signature.kind, name, where + error.status().message(), error.code());
  }
  if (!core::traits_of(request.signature.kind).in_arena) return;
  for (std::size_t i = 0; i < request.buffers.size(); ++i) {
    const engine::Buffer& buffer = request.buffers[i];
    core::TensorSignature& tensor = request.signature.tensors[i];
    if (buffer.input != buffer.output) continue;
    tensor.place = engine.device()->place_of(
        buffer.input, static_cast<std::size_t>(buffer.elements) * size_of(tensor.dtype), group.set().members);
  }
}

std::vector<data::DeviceEventPtr> record(engine::Engine& engine, Device device, const std::vector<Stream>& streams) {
  std::vector<data::DeviceEventPtr> events;
  events.reserve(streams.size());
  for (const Stream& stream : streams) events.push_back(engine.device()->record(device, stream));
  return events;
}

namespace {

/// Gives a claimed name back unless it has been submitted.
class Claim {
 public:
  explicit Claim(engine::Entry& entry) noexcept : entry_(&entry) {}
  ~Claim() {
    if (entry_ != nullptr) entry_->table.give_back(*entry_);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  [[nodiscard]] engine::Entry& entry() const noexcept { return *entry_; }
  void submitted() noexcept { entry_ = nullptr; }

 private:
  engine::Entry* entry_;
};

/// All of a submission that may throw. Of an unnamed call it comes before the call takes its number: a call that throws
/// on one rank alone has not been made.
std::shared_ptr<detail::HandleState> make_operation(engine::Engine& engine, Claim& claim, Request request) {
  engine::Entry& entry = claim.entry();
  const bool known = entry.signature && *entry.signature == request.signature;
  if (!known) name_members(entry.name, request);
  auto operation = std::make_shared<detail::HandleState>();
  operation->ready = record(engine, request.device, request.streams);
  operation->entry = &entry;
  if (!known) entry.signature = entry.table.share(std::move(request.signature));
  operation->signature = entry.signature;
  operation->buffers = std::move(request.buffers);
  operation->timeout = request.timeout;
  operation->room = std::move(request.room);
  operation->more_rooms = std::move(request.more_rooms);
  operation->splits = std::move(request.splits);
  operation->received_splits = std::move(request.received_splits);
  return operation;
}

std::shared_ptr<detail::HandleState> start(engine::Engine& engine, Claim& claim, Request request) {
  std::shared_ptr<detail::HandleState> operation = make_operation(engine, claim, std::move(request));
  claim.submitted();
  engine.submit(operation, false);
  return operation;
}

Result submit_and_wait(engine::Engine& engine, Claim& claim, const std::shared_ptr<detail::HandleState>& operation) {
  engine.check_may_wait_for(*operation);  // before anybody else counts on it
  claim.submitted();
  engine.submit(operation, true);
  engine.wait(*operation, std::nullopt);
  if (operation->failed()) throw Error(operation->outcome());
  return {std::move(operation->room.result), std::move(operation->received_splits)};
}

/// An unnamed call that has its number.
Result run_unnamed(engine::Engine& engine, engine::SetState& set, Claim& claim,
                   const std::shared_ptr<detail::HandleState>& operation) {
  operation->call = set.unnamed.call();
  return submit_and_wait(engine, claim, operation);
}

/// An unnamed call that cannot go by the express.
Result run_by_log(engine::Engine& engine, engine::SetState& set, Claim& claim, Request request) {
  const std::shared_ptr<detail::HandleState> operation = make_operation(engine, claim, std::move(request));
  set.unnamed.decline();
  return run_unnamed(engine, set, claim, operation);
}

/// An unnamed request on the CPU's memory, past the log if that is possible; whether it was.
bool run_by_express(engine::Engine& engine, engine::SetState& set, Request& request) {
  const core::Signature& signature = request.signature;
  engine::ExpressCall call;
  call.kind = signature.kind;
  call.op = signature.op;
  call.prescale = signature.prescale;
  call.postscale = signature.postscale;
  call.root = signature.root;
  if (!signature.tensors.empty()) {
    call.dtype = signature.tensors.front().dtype;
    call.shape = signature.tensors.front().shape;
    call.buffer = request.buffers.front();
  }
  call.splits = request.splits;
  call.make_room = [&](const std::vector<std::int64_t>& parts) {
    if (request.splits.empty()) return request.room.of_gather(call.kind, parts, call.dtype, call.buffer.output);
    return request.room.of_alltoall(call.kind, parts, call.dtype, call.buffer.output);
  };
  return engine.express(set, call, request.timeout);
}

}  // namespace

namespace {

bool same_bits(double a, double b) noexcept {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// Whether that signature is the one that `allreduce_request` would make for a tensor in the CPU's memory.
template <class View>
bool is_same_allreduce(const core::Signature& signature, const View& in, const AllreduceOptions& options) {
  return signature.device == DeviceKind::cpu && signature.kind == core::CollectiveKind::allreduce &&
         signature.op == options.op && signature.members == 0 && signature.tensors.size() == 1 &&
         signature.tensors.front().dtype == in.dtype() && signature.tensors.front().shape == in.shape() &&
         signature.wire == wire_of(options) && same_bits(signature.prescale, options.prescale) &&
         same_bits(signature.postscale, options.postscale);
}

/// That signature.
core::Signature allreduce_signature(const ConstTensorView& in, const AllreduceOptions& options) {
  core::Signature signature = reduction_signature(core::CollectiveKind::allreduce, options);
  signature.tensors.push_back({in.dtype(), in.shape()});
  return signature;
}

/// The name's last operation once more, or a new one.
const std::shared_ptr<detail::HandleState>& take_operation(engine::Entry& entry) {
  if (!engine::try_reuse(entry.last)) {
    entry.last = std::make_shared<detail::HandleState>();
    entry.last->entry = &entry;
    entry.last_at.store(entry.last.get(), std::memory_order_relaxed);
  }
  return entry.last;
}

/// `View`: of the input, as the caller gave it. Views are long, and many small tensors are submitted one by one.
template <class View>
std::shared_ptr<detail::HandleState> submit_allreduce_of(const Group& group, std::string_view name, const View& in,
                                                         const TensorView& out, bool in_place,
                                                         const AllreduceOptions& options) {
  if (in.device().kind != DeviceKind::cpu || out.device().kind != DeviceKind::cpu) {
    return submit(group, name, allreduce_request(name, in, out, in_place, options));
  }
  check_tensors(core::CollectiveKind::allreduce, name, in, out, in_place, options);
  const auto [engine, set] = group.parts();
  check_name(name);
  engine.check_usable();
  Claim claim(set.names.claim(name));
  engine::Entry& entry = claim.entry();
  if (!entry.signature || !is_same_allreduce(*entry.signature, in, options)) {
    return start(engine, claim, allreduce_request(name, in, out, in_place, options));
  }
  const std::shared_ptr<detail::HandleState>& operation = take_operation(entry);
  if (operation->signature != entry.signature) operation->signature = entry.signature;
  operation->buffers.resize(1);
  operation->buffers.front() = buffer_of(in, out.data());
  operation->timeout = options.timeout;
  claim.submitted();
  std::shared_ptr<detail::HandleState> handle = operation;  // now: once submitted, the entry is the next one's
  engine.submit(handle, false);
  return handle;
}

}  // namespace

std::shared_ptr<detail::HandleState> submit_allreduce(const Group& group, std::string_view name,
                                                      const TensorView& inout, const AllreduceOptions& options) {
  return submit_allreduce_of(group, name, inout, inout, true, options);
}

std::shared_ptr<detail::HandleState> submit_allreduce_into(const Group& group, std::string_view name,
                                                           const ConstTensorView& in, const TensorView& out,
                                                           const AllreduceOptions& options) {
  return submit_allreduce_of(group, name, in, out, false, options);
}

std::shared_ptr<detail::HandleState> call(const Group& group, Request request) {
  const auto [engine, set] = group.parts();
  engine.check_usable();
  settle_device(group, {}, request);
  std::vector<data::DeviceEventPtr> ready = record(engine, request.device, request.streams);
  if (!request.members.empty()) name_members({}, request);
  std::shared_ptr<const core::Signature> signature = set.names.share(std::move(request.signature));
  std::shared_ptr<detail::HandleState> operation = set.sequence.take();
  operation->signature = std::move(signature);
  operation->ready = std::move(ready);
  operation->buffers = std::move(request.buffers);
  operation->timeout = request.timeout;
  operation->room = std::move(request.room);
  operation->splits = std::move(request.splits);
  operation->received_splits = std::move(request.received_splits);
  engine.submit(operation, false);
  return operation;
}

std::shared_ptr<detail::HandleState> call_allreduce(const Group& group, const ConstTensorView& in,
                                                    const TensorView& out, bool in_place,
                                                    const AllreduceOptions& options) {
  if (in.device().kind != DeviceKind::cpu || out.device().kind != DeviceKind::cpu) {
    return call(group, allreduce_request({}, in, out, in_place, options));
  }
  check_tensors(core::CollectiveKind::allreduce, {}, in, out, in_place, options);
  const auto [engine, set] = group.parts();
  engine.check_usable();
  std::shared_ptr<detail::HandleState> operation = set.sequence.take();
  if (!operation->signature || !is_same_allreduce(*operation->signature, in, options)) {
    operation->signature = set.names.share(allreduce_signature(in, options));
    operation->room = {};
    operation->splits.clear();
    operation->received_splits.clear();
    operation->ready.clear();
  }
  engine::Buffers buffers;
  buffers.push_back(buffer_of(in, out.data()));
  operation->buffers = std::move(buffers);
  operation->timeout = options.timeout;
  engine.submit(operation, false);
  return operation;
}

std::shared_ptr<detail::HandleState> submit(const Group& group, std::string_view name, Request request) {
  const auto [engine, set] = group.parts();
  check_name(name);
  engine.check_usable();
  settle_device(group, name, request);
  Claim claim(set.names.claim(name));
  return start(engine, claim, std::move(request));
}

Result run(const Group& group, std::string_view name, Request request) {
  const auto [engine, set] = group.parts();
  engine.check_usable();
  engine.check_may_wait();
  if (!name.empty()) check_name(name);
  settle_device(group, name, request);
  if (!name.empty()) {
    Claim claim(set.names.claim(name));
    return submit_and_wait(engine, claim, make_operation(engine, claim, std::move(request)));
  }
  Claim claim(set.names.claim_unnamed());
  if (request.device.kind != DeviceKind::cpu || request.signature.wire != core::Wire::own) {
    return run_by_log(engine, set, claim, std::move(request));
  }
  if (run_by_express(engine, set, request)) {
    return {std::move(request.room.result), std::move(request.received_splits)};
  }
  return run_unnamed(engine, set, claim, make_operation(engine, claim, std::move(request)));
}

void run_unnamed_allreduce(const Group& group, ConstTensorView in, TensorView out, bool in_place,
                           const AllreduceOptions& options) {
  check_tensors(core::CollectiveKind::allreduce, {}, in, out, in_place, options);
  if (in.device().kind != DeviceKind::cpu || out.device().kind != DeviceKind::cpu) {
    run(group, {}, allreduce_request({}, in, out, in_place, options));
    return;
  }
  const auto [engine, set] = group.parts();
  engine.check_usable();
  engine.check_may_wait();
  Claim claim(set.names.claim_unnamed());
  if (options.send_as) {
    run_by_log(engine, set, claim, allreduce_request({}, in, out, in_place, options));
    return;
  }
  engine::ExpressCall call;
  call.kind = core::CollectiveKind::allreduce;
  call.dtype = in.dtype();
  call.shape = in.shape();
  call.op = options.op;
  call.prescale = options.prescale;
  call.postscale = options.postscale;
  call.buffer = buffer_of(in, out.data());
  if (engine.express(set, call, options.timeout)) return;
  run_unnamed(engine, set, claim, make_operation(engine, claim, allreduce_request({}, in, out, in_place, options)));
}

}  // namespace kolo::api
