// SPDX-License-Identifier: Apache-2.0
//
// What happens around the moment when the backward pass has finished one parameter's gradient. The only file that
// needs LibTorch's internal headers, which are not promised to stay as they are.
//
// A leaf tensor that requires a gradient has an accumulator, a node of the autograd graph that adds what the pass has
// computed to `tensor.grad()`, once a pass, all uses of the tensor summed. `before` runs as a hook of its that sees
// what comes in, `after` as one that runs when it has been added. Both run on the thread that runs the node: for CPU
// tensors the one that called `backward()`, for CUDA tensors autograd's thread for that device; what they throw leaves
// `backward()` on its caller's thread. `Tensor::register_hook` would not do: it knows only the first of the two
// moments.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace kolo::libtorch {

class GradientHooks {
 public:
  using Before = std::function<void(const at::Tensor& incoming)>;
  using After = std::function<void()>;

  /// `parameter` is a leaf that requires a gradient.
  GradientHooks(const at::Tensor& parameter, Before before, After after);
  GradientHooks(GradientHooks&&) noexcept;
  GradientHooks& operator=(GradientHooks&&) noexcept;
  /// Removes them; not while a backward pass runs.
  ~GradientHooks();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo::libtorch
