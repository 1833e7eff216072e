// SPDX-License-Identifier: Apache-2.0
//
// LibTorch's tensors as Kolo's views, and what must agree about them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <kolo/context.hpp>
#include <kolo/error.hpp>
#include <kolo/types.hpp>

namespace kolo::libtorch {

/// The element type; a complex tensor's is that of its parts. Throws `Error` (unsupported), beginning with `what`, for
/// types that Kolo has none for, and for sparse, quantized and other tensors that are not plain memory.
DType dtype_of(std::string_view what, const at::Tensor& tensor);

/// LibTorch's type of such elements. Throws `Error` (unsupported) where it has none.
at::ScalarType scalar_type_of(DType dtype);

/// "float32 [64, 32]", and where they are not those of a contiguous tensor, " strides [1, 64]"; " cuda" off the CPU.
std::string describe(const at::Tensor& tensor);

/// A view of a tensor whose memory has no gaps, in the order of memory: one of NHWC layout is [n, h, w, c]. Of a CUDA
/// tensor, as `device_view`.
TensorView memory_view(std::string_view what, const at::Tensor& tensor);

/// Tells autograd that the tensor's memory was written to behind its back: a backward pass that has saved it complains
/// instead of computing with other numbers.
void mark_changed(const at::Tensor& tensor);
/// The tensor, or where its memory is not contiguous or not its values, a copy that is both.
at::Tensor plain(const at::Tensor& tensor);

/// Runs `body` on the root; the others wait for it. What it throws is thrown on every rank, as an `Error` of `code`
/// (or out_of_memory) that begins with `caller`. Returns the root's result, on every rank.
std::string on_root(const Group& group, std::string_view caller, int root, ErrorCode code,
                    const std::function<std::string()>& body);

}  // namespace kolo::libtorch
