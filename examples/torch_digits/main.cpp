// SPDX-License-Identifier: Apache-2.0
//
// Trains a small network of LibTorch's to read handwritten digits, on as many ranks as there are:
//
//     torch_digits [EPOCHS] [--device cuda]               one process
//     mpirun -np 4 torch_digits [EPOCHS] [--device cuda]  four
//
// The four lines marked "Kolo" are what makes an ordinary trainer one for many ranks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <torch/torch.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "examples/torch_digits/device.hpp"
#include "examples/torch_digits/images.hpp"

namespace {

using torch_digits::Images;
using torch_digits::images_of;
using torch_digits::pick;

void train(int epochs, const std::string& device_name) {
  const kolo::Session session;  // Kolo: joins the job
  const torch::Device device = torch_digits::device_named(device_name);
  torch::manual_seed(kolo::rank());  // every rank starts differently ...
  const auto digits = train_digits::load_digits(DIGITS_CSV);
  const auto split = train_digits::split(digits.size(), 1437);
  const Images training = images_of(digits, split.training, device);
  const Images held_out = images_of(digits, split.held_out, device);

  torch::nn::Sequential model(torch::nn::Linear(64, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10));
  model->to(device);
  kolo::libtorch::broadcast_parameters(*model);  // Kolo: ... and now the same
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(2e-3));
  kolo::libtorch::DistributedOptimizer optimizer(adam, *model);       // Kolo: averages gradients during backward()
  kolo::libtorch::DistributedSampler sampler(split.training.size());  // Kolo: this rank's share, reshuffled by epoch

  const auto per_rank = static_cast<std::size_t>(std::max(1, 32 / kolo::size()));
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double loss_sum = 0, count = 0;
    sampler.reset();
    while (const auto rows = sampler.next(per_rank)) {
      const Images batch = pick(training, *rows);
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(batch.pixels), batch.labels);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>() * static_cast<double>(rows->size());
      count += static_cast<double>(rows->size());
    }
    const double loss = kolo::libtorch::average(loss_sum / count, count);
    if (kolo::rank() == 0) {
      std::printf("epoch %d/%d  loss %.6f\n", epoch, epochs, loss);
    }
  }

  const torch::NoGradGuard no_grad;
  const torch::Tensor right = model->forward(held_out.pixels).argmax(1).eq(held_out.labels);
  if (kolo::rank() == 0) {
    std::printf("accuracy %.1f %%  %d rank%s\n", 100 * right.to(torch::kDouble).mean().item<double>(), kolo::size(),
                kolo::size() == 1 ? "" : "s");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int epochs = 30;
    std::string device = "cpu";
    for (int i = 1; i < argc; ++i) {
      if (std::string(argv[i]) == "--device" && i + 1 < argc) {
        device = argv[++i];
      } else {
        epochs = std::atoi(argv[i]);
      }
    }
    train(epochs, device);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_digits: %s\n", error.what());
    return 1;
  }
}
