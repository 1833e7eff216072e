// SPDX-License-Identifier: Apache-2.0
//
// The sum of sparse tensors: everyone's indices and values are gathered, and added up by PyTorch. How many there are
// may differ by rank.
#include <memory>
#include <utility>

#include <ATen/Functions.h>

#include <kolo/collectives.hpp>

#include "c10d/errors.hpp"
#include "c10d/process_group.hpp"

namespace kolo::c10d {
namespace {

std::int64_t product(at::IntArrayRef extents) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : extents) elements *= extent;
  return elements;
}

/// What was gathered, as rows of this shape; it stays where it is.
at::Tensor rows_of(Tensor& gathered, at::IntArrayRef row, at::TensorOptions options) {
  std::vector<std::int64_t> sizes{gathered.shape()[0]};
  sizes.insert(sizes.end(), row.begin(), row.end());
  if (gathered.elements() == 0) return at::empty(sizes, options);
  return at::from_blob(gathered.data(), sizes, options);
}

}  // namespace

ProcessGroupKolo::WorkPtr ProcessGroupKolo::sparse_allreduce(const at::Tensor& tensor,
                                                             const ::c10d::AllreduceOptions& options) {
  const char* call = kAllreduce.call;
  if (options.reduceOp.op_ != ::c10d::ReduceOp::SUM) {
    raise(call, ErrorCode::unsupported, "sparse tensors can be reduced by SUM alone");
  }
  if (!tensor.is_cpu()) {
    raise(call, ErrorCode::unsupported,
          "sparse tensors are reduced in the memory of the CPU, and this one is on " + tensor.device().str());
  }
  const at::Tensor coalesced = tensor.coalesce();
  const std::int64_t dims = coalesced.sparse_dim();
  Packed indices = Packed::to_read(call, {coalesced.indices().t().contiguous()});
  Packed values = Packed::to_read(call, {coalesced.values()});
  const std::int64_t count = coalesced._nnz();
  const std::vector<std::int64_t> row = coalesced.sizes().slice(static_cast<std::size_t>(dims)).vec();
  Occasion occasion{
      call,       kSparseAllreduceType, "kolo:sparse_all_reduce", {tensor}, {tensor}, or_default(options.timeout),
      ++sequence_};
  const AllgatherOptions with_timeout = AllgatherOptions{}.with_timeout(occasion.timeout);
  return start(std::move(occasion), [&](Operation& operation) {
    const auto gather = [&](const Packed& packed, std::int64_t length) {
      const TensorView view = packed.view(moved_elements(packed.type()), {count, length});
      auto future = std::make_shared<Future<Tensor>>(allgather_async(group(), view, with_timeout));
      operation.handles.push_back(future);
      operation.buffers.push_back(packed);
      return future;
    };
    operation.finish = [=, all_indices = gather(indices, dims), all_values = gather(values, product(row))] {
      Tensor gathered_indices = all_indices->get();
      Tensor gathered_values = all_values->get();
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      const at::Tensor sum =
          at::sparse_coo_tensor(rows_of(gathered_indices, {dims}, at::kLong).t(),
                                rows_of(gathered_values, row, tensor.options().layout(at::kStrided)), tensor.sizes())
              .coalesce();
      tensor.copy_(sum);
    };
  });
}

}  // namespace kolo::c10d
