// SPDX-License-Identifier: Apache-2.0
//
// A training step of ResNet-50 by Kolo, beside one of the same model without: torch_step.py starts it, and the same
// under Python's DistributedDataParallel (bench/peers/ddp_resnet.py), and takes the difference.
//
// What is measured comes in pairs: a step whose gradients all ranks share, and one of a second model that every rank
// trains by itself, in changing order. Before and after each the ranks meet in a barrier, and its time ends when all
// ranks have come: so also the step without waits for the slower rank's computation, and the difference does not charge
// that wait to who reduces gradients. What a step leaves to be done behind it is charged, for the barrier waits for it.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include <sys/resource.h>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <kolo/kolo.hpp>
#include <kolo/libtorch.hpp>

#include "bench/kolo_bench/flags.hpp"
#include "bench/kolo_bench/turns.hpp"
#include "examples/torch_resnet/resnet.hpp"

namespace {

struct Flags {
  int steps = 4, turns = 10, pairs = 4, batch = 2, image = 32, threads = 1;
  bool zeros = false;
  kolo_bench::TurnFlags turn;
  std::string json;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// What this process has used so far, all its threads together.
struct Usage {
  double cpu;
  long faults, switches;

  static Usage now() {
    rusage used{};
    if (::getrusage(RUSAGE_SELF, &used) != 0) throw std::runtime_error("getrusage failed");
    return {seconds_of(used.ru_utime) + seconds_of(used.ru_stime), used.ru_minflt, used.ru_nvcsw + used.ru_nivcsw};
  }
};

// Own time and time until all ranks had done it, CPU time of all threads, page faults, switches between threads.
template <class Step>
nlohmann::json measure(const Step& step) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const Usage before = Usage::now();
  const auto begin = Clock::now();
  step();
  const double own = since(begin);
  kolo::barrier();
  const double end = since(begin);
  const Usage after = Usage::now();
  return {own, end, after.cpu - before.cpu, after.faults - before.faults, after.switches - before.switches};
}

// This process's share of memory in MiB, pages that it shares divided by who shares them.
double mebibytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (double kibibytes = 0; word == "Pss:" && file >> kibibytes) return kibibytes / 1024;
  }
  throw std::runtime_error("/proc/self/smaps_rollup says nothing of Pss");
}

// A model with its optimizer, on images made up on the spot.
struct Trainee {
  torch_resnet::ResNet50 model;
  torch::optim::SGD sgd{model->parameters(), torch::optim::SGDOptions(1e-6)};

  void pass(const torch::Tensor& images, const torch::Tensor& labels) {
    torch::nn::functional::cross_entropy(model->forward(images), labels).backward();
  }
  void forget_gradients(bool zero) {
    for (const auto& parameter : model->parameters()) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!zero) {
        gradient.reset();
      } else if (gradient.defined()) {
        gradient.zero_();
      }
    }
  }
  [[nodiscard]] double weights() const {
    double sum = 0;
    for (const auto& parameter : model->parameters()) {
      sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
    }
    return sum;
  }
};

void run(const Flags& flags) {
  const kolo::Session session;
  at::set_num_threads(flags.threads);
  torch::manual_seed(kolo::rank());
  kolo_bench::Turns turns(flags.turn, kolo::rank());
  (void)turns.begin();
  const torch::Tensor images = torch::randn({flags.batch, 3, flags.image, flags.image});
  const torch::Tensor labels = torch::randint(1000, {flags.batch}, torch::kLong);

  Trainee shared;
  kolo::libtorch::broadcast_parameters(*shared.model);
  kolo::libtorch::DistributedOptimizer optimizer(shared.sgd, *shared.model);
  const auto step = [&] {
    optimizer.zero_grad(!flags.zeros);
    shared.pass(images, labels);
    optimizer.step();
  };
  for (int i = 0; i < flags.steps; ++i) step();
  nlohmann::json record{{"mebibytes", mebibytes()}, {"turns", nlohmann::json::array()}};
  Trainee other;
  const auto step_alone = [&] {
    other.forget_gradients(flags.zeros);
    other.pass(images, labels);
    other.sgd.step();
  };
  for (int i = 0; i < 2; ++i) step_alone();
  turns.end(false);

  for (int turn = 0; turn < flags.turns; ++turn) {
    (void)turns.begin();
    step();  // what the other jobs have left in the caches is no part of it
    kolo::barrier();
    nlohmann::json together = nlohmann::json::array(), alone = nlohmann::json::array();
    for (int pair = 0; pair < flags.pairs; ++pair) {
      const bool together_first = pair % 2 == 0;
      if (together_first) together.push_back(measure(step));
      alone.push_back(measure(step_alone));
      if (!together_first) together.push_back(measure(step));
    }
    record["turns"].push_back({{"together", together}, {"alone", alone}});
    turns.end(false);
  }
  record["weights"] = shared.weights();
  if (!flags.json.empty() && !(std::ofstream(flags.json + '.' + std::to_string(kolo::rank())) << record << '\n')) {
    throw std::runtime_error("cannot write " + flags.json);
  }
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Flags flags;
  std::string turn;
  po::options_description options("flags", 110);
  auto add = options.add_options();
  add("help,h", "print this");
  add("steps", po::value(&flags.steps)->default_value(flags.steps), "steps before memory is looked at");
  add("turns", po::value(&flags.turns)->default_value(flags.turns), "how often pairs are measured");
  add("pairs", po::value(&flags.pairs)->default_value(flags.pairs), "pairs a turn");
  add("batch", po::value(&flags.batch)->default_value(flags.batch), "images a rank and step");
  add("image", po::value(&flags.image)->default_value(flags.image), "pixels in each direction");
  add("threads", po::value(&flags.threads)->default_value(flags.threads), "threads a rank");
  add("zeros", po::bool_switch(&flags.zeros), "zero gradients and add to them, instead of making them anew");
  add("turn", po::value(&turn), "I/N:FOLDER: this is job I of N that take turns through FOLDER (see bench/README.md)");
  add("json", po::value(&flags.json)->value_name("FILE"), "each rank writes what it measured to FILE.rank");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    po::notify(given);
    if (given.count("help") != 0) {
      std::cout << "A training step of ResNet-50 by Kolo, beside one without; torch_step.py starts it.\n\n" << options;
      return 0;
    }
    if (!turn.empty()) flags.turn = kolo_bench::parse_turn(turn);
    run(flags);
    return 0;
  } catch (const po::error& error) {
    std::cerr << "kolo-resnet: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-resnet: " << error.what() << '\n';
    return 1;
  }
}
