// SPDX-License-Identifier: Apache-2.0
//
// Tensors on CUDA devices: which stream Kolo has to wait for, and who has to wait for Kolo. The only file that needs
// LibTorch's CUDA headers; built where LibTorch has CUDA and Kolo, too. Elsewhere its calls are errors that say so.
//
// LibTorch gives work to a *current stream*, which every thread and device has one of. What it has given there before a
// call comes before the call's collective; what it gives there after a wait comes after it.
#pragma once

#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <kolo/handle.hpp>
#include <kolo/types.hpp>

namespace kolo::libtorch {

/// A view of a tensor's memory that is written on LibTorch's current stream. Throws `Error` (unsupported), beginning
/// with `what`, when the tensor is not on a CUDA device, or CUDA tensors cannot be used in this build.
TensorView device_view(std::string_view what, const at::Tensor& tensor, DType dtype, const Shape& shape);

/// What LibTorch's current stream is given from now on runs after the operation on this CUDA tensor; the host does not
/// wait for the device. The caching allocator is told that the tensor is in use on that stream, which by then waits for
/// Kolo's: so its memory is not given away before Kolo has done with it, whatever stream it was allocated on. Throws
/// the operation's `Error` when it has failed already.
void wait_on_current_stream(Handle& handle, const at::Tensor& tensor);

/// Where views must name a stream before it is known from which one they will be handed over: a stream of its own,
/// which does nothing but wait.
class Gate {
 public:
  /// For CUDA tensors on this one's device. Throws as `device_view`.
  Gate(std::string_view what, const at::Tensor& tensor);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();

  /// The stream to put into views.
  [[nodiscard]] Stream stream() const;
  /// What is handed over from now on comes after what the calling thread's current stream has been given.
  void let_pass();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::libtorch
