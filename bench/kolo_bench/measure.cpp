// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "interrupt.hpp"

namespace kolo_bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Short calls are many in a sample: ranks leave the barrier before it one after the other, and come out of other code,
/// which cost a reduce of 64 KiB 5 us in all, as much as one call.
constexpr double kSampleMicroseconds = 500;
constexpr int kMostCalls = 1000;
/// Ranks look together whether there is enough, or an interrupt, about so often.
constexpr double kLookMicroseconds = 50'000;
constexpr int kMostRounds = 10;
/// A job whose turn begins has slept: its ranks stand on whatever CPUs they were woken on, often unevenly, and the
/// system takes some milliseconds to spread them. Until then calls do not count.
constexpr double kSettlingMicroseconds = 20'000;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

class HostTimer final : public Timer {
 public:
  void settle() override {}
  void start() override { begin_ = Clock::now(); }
  double stop() override { return microseconds_since(begin_); }

 private:
  Clock::time_point begin_;
};

double time_calls(Bench& bench, const Contestant& contestant, int calls) {
  if (contestant.pause) {
    contestant.pause();
  } else if (calls > 1) {
    contestant.call();
  }
  bench.timer->settle();
  bench.job.barrier();
  bench.timer->start();
  for (int i = 0; i < calls; ++i) contestant.call();
  return bench.timer->stop() / calls;
}

/// Fills the memory also where nothing is compared: pages that were never written are all one page of zeros, which
/// stays in the cache.
std::int64_t prepare_and_check(Job& job, const Contestant& contestant, bool compare) {
  contestant.prepare();
  if (!compare || !contestant.check) return -1;
  contestant.call();
  return job.sum(contestant.check());
}

/// Of one row.
class Course {
 public:
  Course(Bench& bench, const std::vector<Contestant>& contestants)
      : bench_(bench), contestants_(contestants), samples_(contestants.size()), results_(contestants.size()) {}

  std::vector<Measured> run() {
    warm_up();
    while (bench_.turns.begin()) {
      if (bench_.turns.leads() && enough()) break;  // here, where the other jobs have sampled as often
      take_samples();
      bench_.turns.end(false);
    }
    bench_.turns.end(true);
    return summaries();
  }

 private:
  /// Checks, and finds out how many calls make a sample, the same on all ranks.
  void warm_up() {
    if (!bench_.turns.begin()) throw std::logic_error("a row that ended before it began");
    double round = 0;
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      results_[i].name = contestants_[i].name;
      results_[i].wrong = prepare_and_check(bench_.job, contestants_[i], bench_.flags.check);
      std::vector<double> slowest{time_calls(bench_, contestants_[i], std::max(bench_.flags.warmup, 1))};
      bench_.job.max(slowest);
      const double most = contestants_[i].pause ? 1 : kMostCalls;
      const double calls = std::clamp(std::floor(kSampleMicroseconds / std::max(slowest[0], 0.01)), 1.0, most);
      calls_.push_back(static_cast<int>(calls));
      round += slowest[0] * calls;
      if (i == 0 && !bench_.turns.alone() && !contestants_[0].pause) {
        settling_calls_ = static_cast<int>(std::ceil(kSettlingMicroseconds / std::max(slowest[0], 0.01)));
      }
    }
    rounds_ = static_cast<int>(std::clamp(kLookMicroseconds / round, 1.0, 1.0 * kMostRounds));
    begin_ = Clock::now();
    bench_.turns.end(false);
  }

  /// Some samples of each contestant; appends the slowest rank's. In the last place of what the ranks compare stand
  /// the time since the row's begin, and whether anybody has been interrupted.
  void take_samples() {
    std::vector<double> taken;
    for (int i = 0; i < settling_calls_; ++i) contestants_[0].call();
    for (int round = 0; round < rounds_; ++round) {
      for (std::size_t i = 0; i < contestants_.size(); ++i) {
        taken.push_back(time_calls(bench_, contestants_[i], calls_[i]));
      }
    }
    taken.push_back(microseconds_since(begin_));
    taken.push_back(interrupted() ? 1 : 0);
    bench_.job.max(taken);
    const bool stop = taken.back() != 0;
    taken.pop_back();
    elapsed_ = taken.back() / 1e6;
    taken.pop_back();
    for (std::size_t i = 0; i < taken.size(); ++i) samples_[i % contestants_.size()].push_back(taken[i]);
    bench_.progress.show(samples_[0].size(), elapsed_);
    if (!stop) return;
    bench_.progress.clear();
    throw Interrupted();
  }

  [[nodiscard]] bool enough() const {
    if (elapsed_ > bench_.flags.seconds) return true;
    const bool many = samples_[0].size() >= static_cast<std::size_t>(bench_.flags.iterations);
    return many && std::all_of(samples_.begin(), samples_.end(), is_stable);
  }

  std::vector<Measured> summaries() {
    bench_.progress.clear();
    for (std::size_t i = 0; i < results_.size(); ++i) {
      results_[i].microseconds = summarize(samples_[i]);
      results_[i].samples = std::move(samples_[i]);
    }
    return results_;
  }

  Bench& bench_;
  const std::vector<Contestant>& contestants_;
  std::vector<int> calls_;
  int rounds_ = 1;
  int settling_calls_ = 0;  ///< the same on all ranks
  Clock::time_point begin_;
  double elapsed_ = 0;
  std::vector<std::vector<double>> samples_;
  std::vector<Measured> results_;
};

}  // namespace

std::shared_ptr<Timer> make_host_timer() { return std::make_shared<HostTimer>(); }

std::vector<Measured> measure(Bench& bench, const std::vector<Contestant>& contestants) {
  return Course(bench, contestants).run();
}

}  // namespace kolo_bench
