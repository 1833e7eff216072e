// SPDX-License-Identifier: Apache-2.0
//
// An optimizer's state and options in an archive, and out of it.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

namespace kolo::libtorch {

/// Writes what `read_optimizer` needs. Throws what LibTorch throws for optimizers that cannot be saved.
void write_optimizer(torch::serialize::OutputArchive& archive, const torch::optim::Optimizer& optimizer);

/// Makes the optimizer's state and options those of the archive, which was written from one of the same class and
/// groups. Throws what LibTorch throws when it was not.
void read_optimizer(torch::serialize::InputArchive& archive, torch::optim::Optimizer& optimizer);

}  // namespace kolo::libtorch
