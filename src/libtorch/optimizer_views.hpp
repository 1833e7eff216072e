// SPDX-License-Identifier: Apache-2.0
//
// The state and the options of LibTorch's own optimizers as named views, for Kolo's checkpoints. LibTorch makes the
// state of a parameter in its first step, and counts steps by parameter.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/optim/optimizer.h>

#include <kolo/libtorch.hpp>
#include <kolo/types.hpp>

namespace kolo::libtorch {

class OptimizerViews {
 public:
  /// Of one optimizer, always the same: views of its tensors, "<LibTorch's name>/<parameter>", of its numbers,
  /// "options/<group>/<LibTorch's name>", and "step". Makes tensors that are not there yet, of zeros. Throws `Error`
  /// (unsupported) for a class that is none of LibTorch's element-wise ones.
  std::vector<NamedView> of(torch::optim::Optimizer& optimizer, const NamedTensors& parameters);
  /// Gives the optimizer the count, which may have been loaded.
  void before_step(torch::optim::Optimizer& optimizer);
  void after_step() noexcept { ++steps_; }

 private:
  std::int64_t steps_ = 0;
  bool is_viewed_ = false;
};

}  // namespace kolo::libtorch
