// SPDX-License-Identifier: Apache-2.0
// Two ranks as threads take one step of a LibTorch optimizer, each on a row of its own; both must step by the mean.
#include <atomic>
#include <iostream>

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

int main() {
  std::atomic<int> right{0};
  kolo::run_local(2, [&] {
    torch::nn::Linear layer(torch::nn::LinearOptions(2, 1).bias(false));
    kolo::libtorch::broadcast_parameters(*layer);
    const torch::Tensor before = layer->weight.detach().clone();
    torch::optim::SGD sgd(layer->parameters(), 1.0);
    kolo::libtorch::DistributedOptimizer optimizer(sgd, *layer);
    layer(torch::full({1, 2}, 1.0 + 2.0 * kolo::rank())).sum().backward();
    optimizer.step();
    if (torch::equal(layer->weight.detach(), before - 2)) ++right;
  });
  std::cout << "kolo " << kolo::version() << ": " << right << " of 2 ranks stepped by the mean\n";
  return right == 2 ? 0 : 1;
}
