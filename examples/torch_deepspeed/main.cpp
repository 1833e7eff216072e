// SPDX-License-Identifier: Apache-2.0
//
// Trains a small network of LibTorch's to read handwritten digits, as a DeepSpeed program does, by its configuration:
//
//     torch_deepspeed [CONFIG [EPOCHS]]               one process
//     mpirun -np 4 torch_deepspeed [CONFIG [EPOCHS]]  four
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <torch/torch.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "examples/torch_digits/images.hpp"

namespace {

using torch_digits::Images;

void train(const std::string& config, int epochs) {
  const kolo::Session session;
  torch::manual_seed(kolo::rank());  // the engine gives all ranks rank 0's weights
  const auto digits = train_digits::load_digits(DIGITS_CSV);
  const auto split = train_digits::split(digits.size(), 1437);
  const Images training = torch_digits::images_of(digits, split.training, torch::kCPU);
  const Images held_out = torch_digits::images_of(digits, split.held_out, torch::kCPU);

  torch::nn::Sequential model(torch::nn::Linear(64, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10));
  kolo::libtorch::Engine engine = kolo::libtorch::initialize(*model, config);
  kolo::libtorch::DistributedSampler sampler(split.training.size());
  const auto rows_at_once = static_cast<std::size_t>(engine.train_micro_batch_size_per_gpu());
  const torch::ScalarType type = model->parameters().front().scalar_type();

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    sampler.reset();
    while (const auto rows = sampler.next(rows_at_once)) {
      const Images batch = torch_digits::pick(training, *rows);
      const torch::Tensor guess = model->forward(batch.pixels.to(type)).to(torch::kFloat);
      engine.backward(torch::nn::functional::cross_entropy(guess, batch.labels));
      engine.step();
    }
  }

  const torch::NoGradGuard no_grad;
  const torch::Tensor right = model->forward(held_out.pixels.to(type)).argmax(1).eq(held_out.labels);
  if (kolo::rank() == 0) {
    std::printf("accuracy %.1f %%  %d rank%s\n", 100 * right.to(torch::kDouble).mean().item<double>(), kolo::size(),
                kolo::size() == 1 ? "" : "s");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : DS_CONFIG, argc > 2 ? std::atoi(argv[2]) : 30);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_deepspeed: %s\n", error.what());
    return 1;
  }
}
