// SPDX-License-Identifier: Apache-2.0
//
// Trains ResNet-50 on images made up on the spot, and tells how fast: the shape of a real job, without its data.
//
//     torch_resnet --steps 20                 one process
//     mpirun -np 2 torch_resnet --steps 20    two
//
// With --alone N there are N more, and between them as many steps on a second model, which every rank takes by itself:
// what the computation takes, to compare. bench/torch_step does that beside Python's DistributedDataParallel.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "resnet.hpp"

namespace {

struct Flags {
  int steps = 20, alone = 0, batch = 8, image = 64, threads = 1;
  bool zeros = false;
  std::string json;
};

using Seconds = std::vector<double>;

void time_steps(int steps, const std::function<void()>& step, Seconds& seconds) {
  for (int i = 0; i < steps; ++i) {
    kolo::barrier();
    const auto start = std::chrono::steady_clock::now();
    step();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
}

double median(Seconds seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

// This process's share of memory in MiB, pages that it shares divided by who shares them.
double mebibytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word) {
    if (word == "Pss:") {
      double kibibytes = 0;
      file >> kibibytes;
      return kibibytes / 1024;
    }
  }
  return 0;
}

std::string list(const Seconds& seconds) {
  std::string text;
  for (const double second : seconds) {
    text += (text.empty() ? "" : ", ") + std::to_string(second);
  }
  return "[" + text + "]";
}

void report(const Flags& flags, const Seconds& alone, const Seconds& together, double memory) {
  const double images = flags.batch * kolo::size() / median(together);
  std::printf("%.1f images/s  %.1f ms a step", images, 1e3 * median(together));
  if (!alone.empty()) {
    std::printf(" (%.1f ms of it computation)", 1e3 * median(alone));
  }
  std::printf("  %.0f MiB a rank  %d ranks of %d threads\n", memory, kolo::size(), flags.threads);
  if (!flags.json.empty()) {
    std::ofstream(flags.json) << "{\"alone\": " << list(alone) << ", \"together\": " << list(together)
                              << ", \"mebibytes\": " << memory << "}\n";
  }
}

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

void forget_gradients(const torch::nn::Module& model, bool zero) {
  for (const auto& parameter : model.parameters()) {
    if (!zero) {
      parameter.mutable_grad().reset();
    } else if (parameter.grad().defined()) {
      parameter.mutable_grad().zero_();
    }
  }
}

void train(const Flags& flags) {
  const kolo::Session session;
  at::set_num_threads(flags.threads);
  torch::manual_seed(kolo::rank());
  torch_resnet::ResNet50 model;
  kolo::libtorch::broadcast_parameters(*model);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.01));
  const torch::Tensor images = torch::randn({flags.batch, 3, flags.image, flags.image});
  const torch::Tensor labels = torch::randint(1000, {flags.batch}, torch::kLong);
  const auto pass = [&](torch_resnet::ResNet50& network) {
    torch::nn::functional::cross_entropy(network->forward(images), labels).backward();
  };
  kolo::libtorch::DistributedOptimizer optimizer(sgd, *model);
  const auto step = [&] {
    optimizer.zero_grad(!flags.zeros);
    pass(model);
    optimizer.step();
  };
  Seconds together, alone;
  time_steps(flags.steps, step, together);
  const double memory = kolo::allreduce(mebibytes(), kolo::ReduceOp::max);

  if (flags.alone > 0) {
    together.clear();
    torch_resnet::ResNet50 other;
    torch::optim::SGD plain(other->parameters(), torch::optim::SGDOptions(0.01));
    for (int i = 0; i < flags.alone; ++i) {
      time_steps(1, step, together);
      time_steps(
          1,
          [&] {
            forget_gradients(*other, flags.zeros);
            pass(other);
            plain.step();
          },
          alone);
    }
  }
  check_same_weights(*model);
  if (kolo::rank() == 0) {
    report(flags, alone, together, memory);
  }
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Flags flags;
  po::options_description options("flags", 110);
  auto add = options.add_options();
  add("help,h", "print this");
  add("steps", po::value(&flags.steps)->default_value(flags.steps), "steps to train together");
  add("alone", po::value(&flags.alone)->default_value(flags.alone),
      "more steps, beside as many that each rank takes by itself");
  add("batch", po::value(&flags.batch)->default_value(flags.batch), "images a rank and step");
  add("image", po::value(&flags.image)->default_value(flags.image), "pixels in each direction");
  add("threads", po::value(&flags.threads)->default_value(flags.threads), "threads a rank");
  add("zeros", po::bool_switch(&flags.zeros), "zero gradients and add to them, instead of making them anew");
  add("json", po::value(&flags.json)->value_name("FILE"), "write every step's seconds");
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
