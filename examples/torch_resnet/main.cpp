// SPDX-License-Identifier: Apache-2.0
//
// Trains ResNet-50 on images made up on the spot, and tells how fast: the shape of a real job, without its data.
//
//     torch_resnet --steps 20                 one process
//     mpirun -np 2 torch_resnet --steps 20    two
//
// bench/torch_step measures such a step beside Python's DistributedDataParallel.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "examples/torch_digits/device.hpp"
#include "resnet.hpp"

namespace {

struct Flags {
  int steps = 20, batch = 8, image = 64, threads = 1;
  std::string device = "cpu";
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Every rank has the same weights, bit for bit.
void check_same_weights(const torch::nn::Module& model) {
  double sum = 0;
  for (const auto& parameter : model.parameters()) {
    sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
  }
  for (const double other : kolo::allgather_object(sum)) {
    if (other != sum) {
      throw std::runtime_error("ranks hold different weights");
    }
  }
}

void train(const Flags& flags) {
  const kolo::Session session;
  const torch::Device device = torch_digits::device_named(flags.device);
  at::set_num_threads(flags.threads);
  torch::manual_seed(kolo::rank());
  torch_resnet::ResNet50 model;
  model->to(device);
  kolo::libtorch::broadcast_parameters(*model);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.01));
  kolo::libtorch::DistributedOptimizer optimizer(sgd, *model);
  const torch::Tensor images = torch::randn({flags.batch, 3, flags.image, flags.image}, device);
  const torch::Tensor labels = torch::randint(1000, {flags.batch}, torch::TensorOptions(torch::kLong).device(device));

  std::vector<double> seconds;
  for (int i = 0; i < flags.steps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(images), labels).backward();
    optimizer.step();
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  check_same_weights(*model);
  if (kolo::rank() == 0) {
    std::printf("%.1f images/s  %.1f ms a step  %d ranks of %d threads\n", flags.batch * kolo::size() / median(seconds),
                1e3 * median(seconds), kolo::size(), flags.threads);
  }
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Flags flags;
  po::options_description options("flags", 110);
  auto add = options.add_options();
  add("help,h", "print this");
  add("steps", po::value(&flags.steps)->default_value(flags.steps), "steps to train");
  add("batch", po::value(&flags.batch)->default_value(flags.batch), "images a rank and step");
  add("image", po::value(&flags.image)->default_value(flags.image), "pixels in each direction");
  add("device", po::value(&flags.device)->default_value(flags.device), "cpu, or cuda: this rank's GPU");
  add("threads", po::value(&flags.threads)->default_value(flags.threads), "threads a rank");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    po::notify(given);
    if (given.count("help") != 0) {
      std::cout << "Trains ResNet-50 on images made up on the spot.\n\n" << options;
      return 0;
    }
    train(flags);
    return 0;
  } catch (const po::error& error) {
    std::cerr << "torch_resnet: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "torch_resnet: " << error.what() << '\n';
    return 1;
  }
}
