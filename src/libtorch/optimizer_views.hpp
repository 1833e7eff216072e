// SPDX-License-Identifier: Apache-2.0
//
// The state and the options of LibTorch's own optimizers as named views, for Kolo's checkpoints: of a const optimizer
// to be read, and of the state in the making to be loaded. LibTorch makes the state of a parameter in its first step,
// and what it does then may depend on whether there is one (SGD with dampening). So none is made to be read.
#pragma once

#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include <kolo/libtorch.hpp>
#include <kolo/types.hpp>

namespace kolo::libtorch {

/// Of one optimizer, always the same. For each parameter of the list that has elements: tensors,
/// "<LibTorch's name>/<parameter>"; and "step/<parameter>" (int64), or, of SGD with momentum, which counts no steps,
/// "has_momentum/<parameter>" (bool). For each group: "options/<group>/<LibTorch's name>". All throw `Error`
/// (unsupported) for a class that is none of LibTorch's element-wise ones.
class OptimizerViews {
 public:
  /// To be read: of what there is, or, where there is nothing yet, of a copy of what it will begin as. Valid until the
  /// next call of this or of `forget`.
  std::vector<ConstNamedView> read(const torch::optim::Optimizer& optimizer, const NamedTensors& parameters);

  /// To be overwritten: the tensors that there are, and others where there are none. They hold the present values.
  /// Valid until `end_load`.
  std::vector<NamedView> begin_load(torch::optim::Optimizer& optimizer, const NamedTensors& parameters);
  /// What was written is the optimizer's state now.
  void end_load(torch::optim::Optimizer& optimizer);

  /// Frees what views are of, before the optimizer's next step.
  void forget() noexcept;

  /// A parameter's state, or what it will begin as. Tensors are shared with the optimizer, where it has them.
  struct Held {
    Held() = default;
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    virtual ~Held() = default;
    virtual void give_to(torch::optim::Optimizer& optimizer) = 0;
  };

 private:
  std::vector<std::unique_ptr<Held>> read_, loading_;
};

}  // namespace kolo::libtorch
