// SPDX-License-Identifier: Apache-2.0
//
//     mpirun -np 8 hybrid_trainer --tensor 2 --data 2 --pipeline 2 --check      eight processes
//     hybrid_trainer --tensor 2 --data 2 --pipeline 2 --check --local           eight threads
//
// Prints the loss of each step. With --check the exit status is 1 unless one rank alone has the same, within 1e-12.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer.hpp"

namespace {

struct Flags {
  hybrid_trainer::Config config;
  bool local = false, check = false;
  Flags(int argc, char** argv) {
    hybrid_trainer::Config& c = config;
    const std::map<std::string, int*> numbers{
        {"--tensor", &c.tensor},         {"--data", &c.data},   {"--pipeline", &c.pipeline},
        {"--blocks", &c.blocks},         {"--width", &c.width}, {"--hidden", &c.hidden},
        {"--batch-size", &c.batch_size}, {"--steps", &c.steps}, {"--micro-batches", &c.micro_batches}};
    for (int i = 1; i < argc; ++i) {
      const std::string flag = argv[i];
      if (flag == "--local" || flag == "--check") {
        (flag == "--local" ? local : check) = true;
      } else if (numbers.count(flag) == 0) {
        throw std::invalid_argument("there is no flag " + flag);
      } else if (i + 1 == argc || (*numbers.at(flag) = std::atoi(argv[++i])) < 1) {
        throw std::invalid_argument(flag + " takes a whole number from 1");
      }
    }
    if (c.blocks % c.pipeline != 0) throw std::invalid_argument("--blocks must be a multiple of --pipeline");
    if (c.hidden % c.tensor != 0) throw std::invalid_argument("--hidden must be a multiple of --tensor");
    if (c.batch_size % (c.data * c.micro_batches) != 0)
      throw std::invalid_argument("--batch-size must be a multiple of --data times --micro-batches");
  }
};

void train(hybrid_trainer::Config c, bool check) {
  hybrid_trainer::Trainer trainer(kolo::world(), c);
  std::vector<double> losses;
  for (int i = 0; i < c.steps; ++i) {
    losses.push_back(trainer.step(i));
    if (kolo::rank() == 0) std::printf("step %d  loss %.15f\n", i + 1, losses[i]);
  }
  if (!check) return;
  const kolo::Context alone = kolo::Context::alone();
  c.tensor = c.data = c.pipeline = c.micro_batches = 1;
  hybrid_trainer::Trainer reference(alone, c);
  for (int i = 0; i < c.steps; ++i)
    if (!(std::abs(losses[i] / reference.step(i) - 1) <= 1e-12))
      throw std::runtime_error("one rank has another loss in step " + std::to_string(i + 1));
  if (kolo::rank() == 0) std::printf("one rank has the same losses\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags(argc, argv);
    const int ranks = flags.config.tensor * flags.config.data * flags.config.pipeline;
    if (flags.local) {
      kolo::run_local(ranks, [&] { train(flags.config, flags.check); });
    } else {
      const kolo::Session session;
      if (kolo::size() != ranks) throw std::invalid_argument("these degrees need " + std::to_string(ranks) + " ranks");
      train(flags.config, flags.check);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hybrid_trainer: %s\n", error.what());
    return 1;
  }
}
