// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <kolo/call.hpp>
#include <kolo/error.hpp>
#include <kolo/libtorch.hpp>

#include "libtorch/cuda_tensors.hpp"
#include "libtorch/tensors.hpp"

namespace kolo::libtorch {
namespace {

void check_not_followed(const std::string& call, const at::Tensor& tensor) {
  if (at::GradMode::is_enabled() && tensor.requires_grad() && !tensor.is_leaf()) {
    throw Error(ErrorCode::unsupported, call + ": autograd would have to follow this tensor through the collective, "
                                               "which is not supported; give it detached (detach())");
  }
}

// Runs the call that `make` makes of the tensor's memory, or, where that is strided, of a copy.
template <class Make>
void in_place(const Where& where, const std::string& caller, const at::Tensor& tensor, const Make& make) {
  check_not_followed(caller, tensor);
  dtype_of(caller + ": the tensor", tensor);
  const at::NoGradGuard no_grad;
  const at::Tensor memory = plain(tensor);
  run(where, make(memory_view(caller + ": the tensor", memory)));
  if (memory.data_ptr() != tensor.data_ptr()) {
    tensor.detach().copy_(memory);
  }
  mark_changed(tensor);
}

// A LibTorch tensor of a result's memory, which it owns from then on.
at::Tensor adopt(kolo::Tensor result, bool complex) {
  const at::ScalarType type = scalar_type_of(result.dtype());
  const std::vector<std::int64_t> sizes(result.shape().begin(), result.shape().end());
  auto owner = std::make_shared<kolo::Tensor>(std::move(result));
  at::Tensor tensor = at::from_blob(
      owner->data(), sizes, [owner](void*) {}, at::TensorOptions(type));
  return complex ? at::view_as_complex(tensor) : tensor;
}

// Calls `rows` with where the ranks tell one another how many rows a call at `where` brings.
template <class Rows>
std::int64_t rows_at(const Where& where, std::int64_t own, const Rows& rows) {
  if (!where.name()) return rows(Where(where.group()), own);
  return rows(Where(where.group(), std::string(*where.name()) + " (rows)"), own);
}

// Runs a call that gives a new tensor on the contents of this one. `make` makes it of the memory and the output, which
// is empty where the call owns its result. On a device Kolo has no memory of its own to give: there `rows`, a call,
// finds out how many rows the result has.
template <class Make, class Rows>
at::Tensor into_new(const Where& where, const std::string& caller, const at::Tensor& in, const Make& make,
                    const Rows& rows) {
  check_not_followed(caller, in);
  dtype_of(caller + ": the tensor", in);
  const at::NoGradGuard no_grad;
  const at::Tensor memory = plain(in);
  const TensorView view = memory_view(caller + ": the tensor", memory);
  if (in.is_cpu()) {
    CallResult result;
    run(where, make(view, std::nullopt), &result);
    return adopt(std::move(result.output), in.is_complex());
  }
  std::vector<std::int64_t> sizes = in.dim() == 0 ? std::vector<std::int64_t>{1} : in.sizes().vec();
  sizes[0] = rows_at(where, sizes[0], rows);
  at::Tensor result = at::empty(sizes, memory.options());
  run(where, make(view, memory_view(caller + ": the result", result)));
  return result;
}

// The sum of what all ranks say, or of what they say to this one.
std::int64_t sum_of(Span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

}  // namespace

TensorView view(const at::Tensor& tensor) {
  if (!tensor.is_contiguous()) {
    throw Error(ErrorCode::invalid_argument,
                "view: the tensor is not contiguous (" + describe(tensor) + "); contiguous() makes one that is");
  }
  return memory_view("view: the tensor", tensor);
}

TensorHandle::TensorHandle(Handle handle, at::Tensor tensor) noexcept
    : handle_(std::move(handle)), tensor_(std::move(tensor)) {}
TensorHandle::TensorHandle(TensorHandle&&) noexcept = default;
TensorHandle& TensorHandle::operator=(TensorHandle&& other) noexcept {
  if (this != &other) {
    let_go();
    handle_ = std::move(other.handle_);
    tensor_ = std::move(other.tensor_);
  }
  return *this;
}
TensorHandle::~TensorHandle() { let_go(); }

// What is still under way takes the tensor along.
void TensorHandle::let_go() noexcept {
  try {
    if (handle_.valid() && !handle_.done()) {
      handle_.on_done([tensor = std::move(tensor_)](const Status&) {});
      handle_.detach();
    }
  } catch (const Error&) {  // a forked process, in which nothing uses the tensor
  }
}

at::Tensor TensorHandle::wait() {
  if (tensor_.is_cpu()) {
    handle_.wait();
  } else {
    wait_on_current_stream(handle_, tensor_);
  }
  mark_changed(tensor_);
  return tensor_;
}

void allreduce(const Where& where, const at::Tensor& inout, const AllreduceOptions& options) {
  in_place(where, "allreduce", inout, [&](const TensorView& memory) { return Call::allreduce(memory, options); });
}
TensorHandle allreduce_async(const Where& where, const at::Tensor& inout, const AllreduceOptions& options) {
  check_not_followed("allreduce_async", inout);
  return {start(where, Call::allreduce(view(inout), options)), inout};
}

void broadcast(const Where& where, const at::Tensor& inout, int root, const BroadcastOptions& options) {
  in_place(where, "broadcast", inout, [&](const TensorView& memory) { return Call::broadcast(memory, root, options); });
}
TensorHandle broadcast_async(const Where& where, const at::Tensor& inout, int root, const BroadcastOptions& options) {
  check_not_followed("broadcast_async", inout);
  return {start(where, Call::broadcast(view(inout), root, options)), inout};
}

at::Tensor allgather(const Where& where, const at::Tensor& in, const AllgatherOptions& options) {
  return into_new(
      where, "allgather", in,
      [&](const TensorView& memory, const std::optional<TensorView>& out) {
        return out ? Call::allgather_into(memory, *out, options) : Call::allgather(memory, options);
      },
      [&](const Where& its, std::int64_t rows) {
        return sum_of(kolo::allgather(its, const_view(&rows, std::size_t{1}), options).as<std::int64_t>());
      });
}

at::Tensor alltoall(const Where& where, const at::Tensor& in, Splits splits, const AlltoallOptions& options) {
  return into_new(
      where, "alltoall", in,
      [&](const TensorView& memory, const std::optional<TensorView>& out) {
        return out ? Call::alltoall_into(memory, *out, splits, options) : Call::alltoall(memory, splits, options);
      },
      [&](const Where& its, std::int64_t rows) {
        if (splits.empty()) {
          return rows;  // as many as it gives
        }
        const auto received = kolo::alltoall(its, const_view(splits.data(), splits.size()), {}, options);
        return sum_of(received.output.as<std::int64_t>());
      });
}

at::Tensor reduce_scatter(const Where& where, const at::Tensor& in, const ReduceScatterOptions& options) {
  return into_new(
      where, "reduce_scatter", in,
      [&](const TensorView& memory, const std::optional<TensorView>& out) {
        return out ? Call::reduce_scatter_into(memory, *out, options) : Call::reduce_scatter(memory, options);
      },
      [&](const Where& its, std::int64_t rows) {
        const int ranks = size(its.group());
        return rows / ranks + (rank(its.group()) < rows % ranks ? 1 : 0);
      });
}

double average(const Group& group, double value, double weight) {
  double sums[2] = {weight == 0 ? 0 : value * weight, weight};
  kolo::allreduce(group, kolo::view(sums, 2));
  return sums[0] / sums[1];
}

}  // namespace kolo::libtorch
