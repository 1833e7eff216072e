// SPDX-License-Identifier: Apache-2.0
//
// kolo-shards: what an AdamW costs a rank whose state is replicated, and one whose state is shared: memory, and the
// time of a step of BERT-base's gradients. The two take turns, step by step, on the same parameters.
//
//     mpirun -np 4 kolo-shards
//     mpirun -np 2 kolo-shards --layers 2 --steps 20
//
// Memory is the growth of the proportional set size (Pss) from before the optimizer is made until it has made a step.
// Rank 0 prints the means over the ranks.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include <kolo/kolo.hpp>
#include <kolo/training.hpp>

namespace {

namespace po = boost::program_options;

struct Flags {
  int layers = 12;
  int steps = 5;
};

struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The parameters of BERT-base (Devlin et al., 2018), with so many of its 12 layers.
std::vector<std::int64_t> bert(int layers) {
  constexpr std::int64_t kWidth = 768, kInner = 3072;
  std::vector<std::int64_t> sizes{30522 * kWidth, 512 * kWidth, 2 * kWidth, kWidth, kWidth};
  for (int i = 0; i < layers; ++i) {
    for (int part = 0; part < 4; ++part) sizes.insert(sizes.end(), {kWidth * kWidth, kWidth});
    sizes.insert(sizes.end(), {kWidth, kWidth, kInner * kWidth, kInner, kWidth * kInner, kWidth, kWidth, kWidth});
  }
  sizes.insert(sizes.end(), {kWidth * kWidth, kWidth});
  return sizes;
}

struct Network {
  std::vector<std::vector<float>> values, gradients;
  std::vector<kolo::Parameter> list;

  explicit Network(const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes) {
      values.emplace_back(static_cast<std::size_t>(size), 0.5F);
      gradients.emplace_back(static_cast<std::size_t>(size), 0.25F);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      list.push_back({"w" + std::to_string(i), kolo::view(values[i]), kolo::view(gradients[i])});
    }
  }
};

/// This rank's pages, and its share of those that it shares, in MiB.
double pss_mib() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  double kib = 0;
  while (file >> word) {
    if (word == "Pss:" && file >> kib) return kib / 1024;
  }
  throw std::runtime_error("/proc/self/smaps_rollup does not say how much memory this rank has");
}

double mean(double value) { return kolo::allreduce(value, kolo::ReduceOp::sum) / kolo::size(); }

/// In ms, of the slowest rank.
double time_of(const std::function<void()>& step) {
  kolo::barrier();
  const auto start = std::chrono::steady_clock::now();
  step();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return kolo::allreduce(took.count(), kolo::ReduceOp::max);
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

void measure(const Flags& flags) {
  Network net(bert(flags.layers));
  const kolo::GradientArena arena(net.list);
  kolo::Sgd stands_still(net.list, kolo::SgdOptions().with_learning_rate(0));
  {  // touches what the engine and both kinds of reduction need, with no state
    kolo::DistributedOptimizer all(stands_still, net.list);
    all.step();
    const auto make = [](kolo::Span<const kolo::Parameter> mine) {
      return kolo::Sgd(mine, kolo::SgdOptions().with_learning_rate(0));
    };
    kolo::ShardedOptimizer pieces(
        net.list, make,
        kolo::ShardedOptimizerOptions().with_reduction(kolo::DistributedOptimizerOptions().with_name("pieces")));
    pieces.step();
  }
  kolo::barrier();
  const double before = pss_mib();
  kolo::AdamW adamw(net.list);
  kolo::DistributedOptimizer replicated(adamw, net.list);
  replicated.step();
  kolo::barrier();
  const double between = pss_mib();
  kolo::ShardedOptimizer sharded(
      net.list, [](kolo::Span<const kolo::Parameter> mine) { return kolo::AdamW(mine); },
      kolo::ShardedOptimizerOptions().with_reduction(kolo::DistributedOptimizerOptions().with_name("sharded")));
  sharded.step();
  kolo::barrier();
  const double after = pss_mib();
  std::vector<double> times[2];
  for (int step = 0; step < flags.steps; ++step) {
    times[0].push_back(time_of([&] { replicated.step(); }));
    times[1].push_back(time_of([&] { sharded.step(); }));
  }
  const double all = mean(between - before), mine = mean(after - between);
  if (kolo::rank() == 0) {
    std::printf("%d ranks  state of a rank: replicated %.1f MiB, sharded %.1f MiB (%.3f)  step: replicated %.1f ms, "
                "sharded %.1f ms (%.2f)\n",
                kolo::size(), all, mine, mine / all, median(times[0]), median(times[1]),
                median(times[1]) / median(times[0]));
  }
}

/// Whether to go on.
bool parse(int argc, char** argv, Flags& flags) {
  po::options_description options("flags");
  auto add = options.add_options();
  add("help,h", "print this");
  add("layers", po::value(&flags.layers)->value_name("N"), "of BERT-base's 12");
  add("steps", po::value(&flags.steps)->value_name("N"), "that are timed, of each");
  po::variables_map given;
  try {
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).run(), given);
    po::notify(given);
  } catch (const po::error& error) {
    throw BadFlags(error.what());
  }
  if (given.count("help") != 0) {
    std::cout << "Measures memory and step of a replicated and a sharded AdamW.\n\n"
              << "usage: mpirun -np N kolo-shards [flags]\n\n"
              << options;
    return false;
  }
  if (flags.layers < 0 || flags.steps < 1) throw BadFlags("--layers must be 0 or more, --steps 1 or more");
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (!parse(argc, argv, flags)) return 0;
    const kolo::Session session;
    measure(flags);
    return 0;
  } catch (const BadFlags& error) {
    std::fprintf(stderr, "kolo-shards: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kolo-shards: %s\n", error.what());
    return 1;
  }
}
