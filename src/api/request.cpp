// SPDX-License-Identifier: Apache-2.0
#include "api/request.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "api/access.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "core/element_types.hpp"
#include "data/backend.hpp"

namespace kolo::api {
namespace {

/// The shape without its first dimension. A scalar counts as one row.
Shape row_of(const Shape& shape) { return shape.rank() == 0 ? Shape{} : Shape(shape.begin() + 1, shape.rank() - 1); }

std::int64_t bytes_of(const Shape& shape, DType dtype) {
  return shape.elements() * static_cast<std::int64_t>(size_of(dtype));
}

/// Makes the request of one call. It has a function for each relation between the shapes of input and output.
class RequestMaker {
 public:
  RequestMaker(const engine::SetState& set, std::string_view name, const detail::CallParts& call)
      : subject_(call.kind, name), traits_(core::traits_of(call.kind)), call_(call), root_(root_of(set, call)) {}

  Request make() {
    request_.signature = signature_of(subject_.name, call_);
    request_.outputs.first.owns_result = call_.owns_result;
    if (traits_.rooted) check_root(subject_, root_);
    add_tensors();
    if (call_.owns_result) check_memory_for_result();
    check_timeout(subject_, call_.timeout);
    request_.timeout = call_.timeout;
    return std::move(request_);
  }

 private:
  void add_tensors();
  void add_of_one_shape();
  void add_members();
  void add_gathered();
  void check_equal_rows() const;
  void add_scattered();
  void add_root_rows();
  void add_exchanged();
  void add_reduced_rows();

  /// Checks the input, and the output if the caller gives one. They may differ in shape.
  void check_input() const {
    if (call_.output) {
      check_types(subject_, *call_.input, *call_.output);
    } else {
      check_view(subject_, "input", *call_.input);
    }
  }
  void check_output_apart(const char* remedy) const { check_apart(subject_, *call_.input, *call_.output, remedy); }
  void check_memory_for_result() const {
    if (!request_.outputs.first.is_wanted || request_.device.kind == DeviceKind::cpu) return;
    refuse(subject_,
           "its input lies on " + to_string(request_.device) +
               ", where the call that returns its result does not work; use the call with _into, and give the output",
           ErrorCode::unsupported);
  }
  void check_aligned(const ConstTensorView& view) const;
  void locate(const ConstTensorView& view);
  void locate_both() {
    locate(*call_.input);
    if (call_.output) locate(*call_.output);
  }
  void add(const ConstTensorView& tensor, const Shape& shape) {
    request_.signature.tensors.push_back({tensor.dtype(), shape});
  }
  void add_buffer(const ConstTensorView& in, void* out) {
    request_.buffers.push_back({static_cast<const std::byte*>(in.data()), static_cast<std::byte*>(out), in.elements()});
  }
  void make_result(const Shape& shape) {
    request_.outputs.first.make_result(call_.input->dtype(), shape, describe(subject_));
  }
  /// A result of known size: memory of the caller, or allocated here.
  void* output_of(const Shape& shape) {
    if (!call_.output) make_result(shape);
    return call_.output ? call_.output->data() : request_.outputs.first.result.data();
  }

  const Subject subject_;
  const core::CollectiveTraits& traits_;
  const detail::CallParts& call_;
  const Root root_;
  Request request_;
};

/// A GPU reads only aligned elements. Collectives that do not reduce move bytes, so they need no alignment.
void RequestMaker::check_aligned(const ConstTensorView& view) const {
  if (view.device().kind == DeviceKind::cpu || !traits_.reduces) return;
  const std::size_t size = size_of(view.dtype());
  if (reinterpret_cast<std::uintptr_t>(view.data()) % size == 0) return;
  refuse(subject_, "its tensor's address is not a multiple of " + std::to_string(size) + " bytes, the size of " +
                       std::string(to_string(view.dtype())) + "; a GPU reduces aligned elements only");
}

/// Notes the device of a tensor; all tensors of the call must be on the same one.
void RequestMaker::locate(const ConstTensorView& view) {
  if (request_.located && view.device() != request_.device) {
    refuse(subject_, "its tensors lie on " + to_string(request_.device) + " and on " + to_string(view.device()) +
                         "; all tensors of a call must be in one place");
  }
  request_.located = true;
  request_.device = view.device();
  request_.signature.device = view.device().kind;
  check_aligned(view);
  if (view.device().kind == DeviceKind::cpu || !view.stream()) return;
  const auto same = [&](const Stream& stream) { return stream.native == view.stream()->native; };
  if (std::none_of(request_.streams.begin(), request_.streams.end(), same)) request_.streams.push_back(*view.stream());
}

void RequestMaker::add_tensors() {
  switch (traits_.shapes) {
  case core::Shapes::none:
    return;
  case core::Shapes::same:
    return call_.members ? add_members() : add_of_one_shape();
  case core::Shapes::gathered:
    return add_gathered();
  case core::Shapes::scattered:
    return add_scattered();
  case core::Shapes::exchanged:
    return add_exchanged();
  case core::Shapes::own_rows:
    return add_reduced_rows();
  }
}

void RequestMaker::add_of_one_shape() {
  if (traits_.result_at_root) check_output_at_root(subject_, call_.output, root_);
  const ConstTensorView& in = input_of(call_);
  check_tensors(subject_, in, call_);
  locate(in);
  if (call_.output) locate(*call_.output);
  add(in, in.shape());
  request_.buffers.push_back(buffer_of(call_, root_));
}

void RequestMaker::add_members() {
  const Span<const NamedView> members = *call_.members;
  if (members.empty()) refuse(subject_, "a grouped call needs at least one member");
  core::Signature& signature = request_.signature;
  signature.tensors.reserve(members.size());
  request_.buffers.reserve(members.size());
  request_.members = members;
  signature.members = base::kHashSeed;
  for (const NamedView& member : members) {
    signature.members = base::hash_text_quickly(member.name, signature.members);
    const Subject one(call_.kind, member.name);
    check_view(one, "tensor", member.view);
    check_reduction(one, member.view.dtype(), call_);
    locate(member.view);
    add(member.view, member.view.shape());
    add_buffer(member.view, member.view.data());
  }
  check_members(subject_, members);
}

/// All ranks' rows one after another, on every rank or only on the root. On other ranks an output of the caller's is
/// not written, and an allocated one has no rows. The input may lie at this rank's place in the output; that is checked
/// when all lengths are known.
void RequestMaker::add_gathered() {
  const ConstTensorView& in = *call_.input;
  const std::optional<TensorView>& out = call_.output;
  if (traits_.result_at_root && !call_.owns_result) check_output_at_root(subject_, out, root_);
  check_input();
  detail::Output& output = request_.outputs.first;
  if (out && is_inside(in, *out)) {
    output.input_at = static_cast<const std::byte*>(in.data()) - static_cast<const std::byte*>(out->data());
  } else if (out) {
    check_output_apart("give an output of its own");
  }
  output.row = row_of(in.shape());
  if (output.row.elements() == 0) {
    refuse(subject_, "its rows, of shape " + to_string(output.row) + ", have no elements; nothing can be gathered");
  }
  output.row_bytes = bytes_of(output.row, in.dtype());
  output.output_elements = out ? out->elements() : 0;
  output.is_wanted = !traits_.result_at_root || root_.is_here();
  output.rank = root_.self;
  if (!traits_.rows_differ) check_equal_rows();
  add(in, traits_.rows_differ ? output.row : in.shape());
  locate_both();
  add_buffer(in, out ? out->data() : nullptr);
  if (call_.owns_result && !output.is_wanted) make_result(detail::with_rows(0, output.row));
}

/// What is checked when all lengths are known, where they are the same.
void RequestMaker::check_equal_rows() const {
  const ConstTensorView& in = *call_.input;
  const TensorView& out = *call_.output;
  if (out.elements() != in.elements() * root_.ranks) {
    refuse(subject_, "the output has " + std::to_string(out.elements()) + " elements, but " +
                         std::to_string(root_.ranks) + " ranks give " + std::to_string(in.elements()) + " each");
  }
  const std::int64_t at = request_.outputs.first.input_at;
  if (at >= 0 && at != bytes_of(in.shape(), in.dtype()) * root_.self)
    check_output_apart("give an output of its own, or exactly this rank's rows of it as the input");
}

/// Distributes the root's rows. Only the root's input and splits are read.
void RequestMaker::add_scattered() {
  const TensorView& out = *call_.output;
  check_view(subject_, "output", out);
  request_.outputs.first.row = row_of(out.shape());
  request_.outputs.first.output_elements = out.elements();
  add(out, request_.outputs.first.row);
  locate(out);
  if (root_.is_here()) return add_root_rows();
  request_.outputs.splits.assign(static_cast<std::size_t>(root_.ranks), 0);
  request_.buffers.push_back({nullptr, static_cast<std::byte*>(out.data()), 0});
}

/// The root's part of a scatter: how much it sends to each rank.
void RequestMaker::add_root_rows() {
  if (!call_.input) {
    refuse(subject_, "rank " + std::to_string(root_.rank) + " is the root, whose rows the ranks get; give an input");
  }
  const ConstTensorView& in = *call_.input;
  const TensorView& out = *call_.output;
  check_input();
  check_splits(subject_, in.shape(), call_.splits, root_.ranks);
  const Shape row = row_of(in.shape());
  if (row != request_.outputs.first.row) {
    refuse(subject_, "the input has rows of shape " + to_string(row) + ", but the output has rows of " +
                         to_string(request_.outputs.first.row) + "; they must agree");
  }
  if (call_.splits.empty()) {
    request_.outputs.splits.assign(static_cast<std::size_t>(root_.ranks), in.shape()[0] / root_.ranks);
  } else {
    request_.outputs.splits.assign(call_.splits.begin(), call_.splits.end());
  }
  const auto before =
      std::accumulate(request_.outputs.splits.begin(), request_.outputs.splits.begin() + root_.rank, std::int64_t{0});
  if (static_cast<const std::byte*>(in.data()) + before * bytes_of(row, in.dtype()) != out.data())
    check_output_apart("give an output of its own, or exactly this rank's rows of the input");
  locate(in);
  add_buffer(in, out.data());
}

/// Every rank sends rows to every rank: with splits the numbers that they give, else the same number.
void RequestMaker::add_exchanged() {
  const ConstTensorView& in = *call_.input;
  const std::optional<TensorView>& out = call_.output;
  check_input();
  if (out) check_output_apart("give an output of its own");
  check_splits(subject_, in.shape(), call_.splits, root_.ranks);
  if (traits_.rows_differ) {
    request_.outputs.first.row = row_of(in.shape());
    request_.outputs.first.output_elements = out ? out->elements() : 0;
    request_.outputs.splits.assign(call_.splits.begin(), call_.splits.end());
    if (subject_.kind == core::CollectiveKind::alltoall_known) {
      check_received_splits(subject_, row_of(in.shape()), *out, call_.received_splits, root_.ranks);
      request_.outputs.splits.insert(request_.outputs.splits.end(), call_.received_splits.begin(),
                                     call_.received_splits.end());
    }
    add(in, request_.outputs.first.row);
    locate_both();
    return add_buffer(in, out ? out->data() : nullptr);
  }
  if (out && out->elements() != in.elements()) {
    refuse(subject_, "the input has " + std::to_string(in.elements()) + " elements, but the output has " +
                         std::to_string(out->elements()) + "; they must agree");
  }
  request_.outputs.received.assign(static_cast<std::size_t>(root_.ranks), in.shape()[0] / root_.ranks);
  add(in, in.shape());
  locate_both();
  add_buffer(in, output_of(in.shape()));
}

/// Each rank gets its rows of an all-reduce's result.
void RequestMaker::add_reduced_rows() {
  const ConstTensorView& in = *call_.input;
  const std::optional<TensorView>& out = call_.output;
  check_view(subject_, "input", in);
  check_reduction(subject_, in.dtype(), call_);
  if (in.shape().rank() == 0) refuse(subject_, "a scalar has no rows; give a tensor of at least one dimension");
  const data::RowsOf rows(in.shape()[0], root_.self, root_.ranks);
  const Shape row = row_of(in.shape());
  const Shape mine = detail::with_rows(rows.count, row);
  if (out) {
    check_types(subject_, in, *out);
    if (out->elements() != mine.elements()) {
      refuse(subject_, "the output has shape " + to_string(out->shape()) + ", but rank " + std::to_string(root_.self) +
                           "'s part of the input's " + to_string(in.shape()) + " is " + to_string(mine));
    }
    if (static_cast<const std::byte*>(in.data()) + rows.begin * bytes_of(row, in.dtype()) != out->data())
      check_output_apart("give an output of its own, or exactly this rank's rows of the input");
  }
  add(in, in.shape());
  locate_both();
  add_buffer(in, output_of(mine));
}

}  // namespace

core::Signature signature_of(std::string_view name, const detail::CallParts& call) {
  core::Signature signature;
  signature.kind = call.kind;
  signature.op = call.op;
  signature.prescale = call.prescale;
  signature.postscale = call.postscale;
  signature.wire = wire_of(call);
  signature.root = call.root;
  signature.priority = priority_of(name, call);
  return signature;
}

Request make_request(const engine::SetState& set, std::string_view name, const Call& call) {
  if (parts_of(call).calls) return make_grouped_request(set, name, *parts_of(call).calls);
  return RequestMaker(set, name, parts_of(call)).make();
}

void name_members(std::string_view group, Request& request) {
  std::vector<std::string> names;
  names.reserve(request.members.size());
  for (const NamedView& member : request.members) names.push_back(member.name);
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    refuse({request.signature.kind, group},
           "two of its members are named " + base::quoted(*twice) + "; names within a grouped call must differ");
  }
  request.signature.names = std::move(names);
}

}  // namespace kolo::api
