// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <chrono>

namespace kolo_bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleMicroseconds = 100;
constexpr int kMostCalls = 1000;
constexpr int kRoundsPerLook = 10;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double time_calls(Job& job, const Contestant& contestant, int calls) {
  job.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) contestant.call();
  return microseconds_since(begin) / calls;
}

std::int64_t check(Job& job, const Contestant& contestant) {
  contestant.prepare();
  contestant.call();
  return job.sum(contestant.check());
}

/// How many calls make a sample, the same on all ranks.
int warm_up(Job& job, const Flags& flags, const Contestant& contestant) {
  std::vector<double> slowest{time_calls(job, contestant, std::max(flags.warmup, 1))};
  job.max(slowest);
  return std::clamp(static_cast<int>(kSampleMicroseconds / std::max(slowest[0], 0.01)), 1, kMostCalls);
}

/// Takes `rounds` samples of each contestant and appends the slowest rank's.
void take_samples(Job& job, const std::vector<Contestant>& contestants, const std::vector<int>& calls, int rounds,
                  std::vector<std::vector<double>>& samples) {
  std::vector<double> taken;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < contestants.size(); ++i) taken.push_back(time_calls(job, contestants[i], calls[i]));
  }
  job.max(taken);
  for (std::size_t i = 0; i < taken.size(); ++i) samples[i % contestants.size()].push_back(taken[i]);
}

}  // namespace

std::vector<Measured> measure(Job& job, const Flags& flags, std::vector<Contestant> contestants) {
  std::vector<Measured> results;
  std::vector<int> calls;
  for (const Contestant& contestant : contestants) {
    Measured measured;
    measured.name = contestant.name;
    if (flags.check) measured.wrong = check(job, contestant);
    calls.push_back(warm_up(job, flags, contestant));
    results.push_back(measured);
  }
  std::vector<std::vector<double>> samples(contestants.size());
  const auto begin = Clock::now();
  const int rounds = std::min(kRoundsPerLook, flags.iterations);
  while (true) {
    take_samples(job, contestants, calls, rounds, samples);
    std::vector<double> elapsed{microseconds_since(begin)};
    job.max(elapsed);
    const bool enough = samples.front().size() >= static_cast<std::size_t>(flags.iterations);
    const bool stable = std::all_of(samples.begin(), samples.end(), is_stable);
    if ((enough && stable) || elapsed[0] > flags.seconds * 1e6) break;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].microseconds = summarize(samples[i]);
    results[i].samples = samples[i].size();
  }
  return results;
}

}  // namespace kolo_bench
