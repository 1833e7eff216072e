// SPDX-License-Identifier: Apache-2.0
//
// kolo-idle: what an engine with nothing to do costs. Every rank joins, then blocks for a while as a trainer does that
// computes on something else, and prints how much CPU time its whole process used meanwhile: the engine's background
// thread, and whatever MPI keeps running.
//
// With --busy the main thread computes instead, by turns in a job and without one, and what counts is whether the
// engine slows it.
//
//     mpirun -np 4 kolo-idle
//     mpirun -np 2 kolo-idle --busy
//     KOLO_RANKS_PER_NODE=1 mpirun -np 4 kolo-idle    virtual nodes: TCP between them
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <sys/resource.h>

#include <boost/program_options.hpp>

#include <kolo/kolo.hpp>

namespace {

namespace po = boost::program_options;

struct Flags {
  double seconds = 10;
  int steps = 0;
  double limit_ms = 10;
  bool busy = false;
  double limit_percent = 1;
};

struct BadFlags : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Of the whole process, all its threads.
struct Usage {
  double user_ms = 0;
  double system_ms = 0;
  std::int64_t slept = 0;      // voluntary context switches
  std::int64_t preempted = 0;  // involuntary ones

  [[nodiscard]] double cpu_ms() const { return user_ms + system_ms; }
};

double to_ms(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) * 1e-3;
}

Usage usage() {
  rusage now{};
  if (::getrusage(RUSAGE_SELF, &now) != 0) throw std::system_error(errno, std::generic_category(), "getrusage");
  return {to_ms(now.ru_utime), to_ms(now.ru_stime), now.ru_nvcsw, now.ru_nivcsw};
}

Usage operator-(const Usage& a, const Usage& b) {
  return {a.user_ms - b.user_ms, a.system_ms - b.system_ms, a.slept - b.slept, a.preempted - b.preempted};
}

/// Blocks this thread; nobody ever notifies it.
void block_for(double seconds) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, std::chrono::duration<double>(seconds), [] { return false; });
}

/// Prints the table; whether every rank stayed below the limit.
bool report(const std::vector<Usage>& ranks, const Flags& flags, bool print) {
  bool good = true;
  if (print)
    std::printf("%6s %10s %10s %10s %8s %10s\n", "rank", "cpu ms", "user ms", "system ms", "slept", "preempted");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Usage& one = ranks[rank];
    good = good && one.cpu_ms() < flags.limit_ms;
    if (!print) continue;
    std::printf("%6zu %10.3f %10.3f %10.3f %8lld %10lld%s\n", rank, one.cpu_ms(), one.user_ms, one.system_ms,
                static_cast<long long>(one.slept), static_cast<long long>(one.preempted),
                one.cpu_ms() < flags.limit_ms ? "" : "  too much");
  }
  if (print) {
    std::printf("%s: %g s idle cost %s %g ms of CPU in every rank\n", good ? "good" : "MISSED", flags.seconds,
                good ? "less than" : "not less than", flags.limit_ms);
    std::fflush(stdout);
  }
  return good;
}

/// Training steps in miniature, so that there are names, batches and plans to be idle with.
void work(int steps) {
  std::vector<std::vector<float>> gradients(8, std::vector<float>(1 << 16, 1.0F));
  for (int step = 0; step < steps; ++step) {
    std::vector<kolo::Handle> handles;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      handles.push_back(kolo::allreduce_async("gradient" + std::to_string(i), kolo::view(gradients[i])));
    }
    kolo::wait_all(handles);
    kolo::end_step();
  }
}

bool run_idle(const Flags& flags) {
  const kolo::Session session;
  work(flags.steps);
  const Usage before = usage();
  block_for(flags.seconds);
  const Usage mine = usage() - before;
  return report(kolo::allgather_object(mine), flags, kolo::rank() == 0);
}

/// How long the trainer computes, in ms, and what its process did meanwhile.
struct Computed {
  double took_ms = 0;
  Usage used;
};

Computed compute() {
  constexpr int kRounds = 40'000;  // some 5 ms
  std::vector<float> numbers(1024, 1.0F);
  const Usage before = usage();
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < kRounds; ++round) {
    for (float& x : numbers) x = x * 0.999F + 0.001F;
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  const volatile float result = numbers[0];  // so that the compiler keeps the computing
  (void)result;
  return {std::chrono::duration<double, std::milli>(took).count(), usage() - before};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What a busy rank saw: how much longer computing took beside an engine (the median, and the interval in which it lies
/// with 95 % probability), and how often its threads slept while they need not have.
struct Busy {
  double percent = 0;
  double low = 0;
  double high = 0;
  std::int64_t slept = 0;
};

/// Computes for so long; the median. Adds to `slept`, but for the end, when another rank may be leaving already, which
/// this one hears of.
double compute_for(double seconds, std::int64_t& slept) {
  constexpr std::size_t kEnd = 3;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::vector<double> times;
  std::vector<std::int64_t> sleeps;
  do {
    const Computed one = compute();
    times.push_back(one.took_ms);
    sleeps.push_back(one.used.slept);
  } while (std::chrono::steady_clock::now() < end);
  for (std::size_t i = 0; i + kEnd < sleeps.size(); ++i) slept += sleeps[i];
  return median(std::move(times));
}

/// In turns with and without a job, because a machine's speed drifts: the median of what neighbouring turns differ by,
/// each with the other before it and behind it as often.
Busy compare(const Flags& flags) {
  constexpr std::size_t kPairs = 20;
  constexpr std::size_t kBelow = 5;  // of 20 values so many lie below the median's interval, and above it (binomial)
  const double seconds = flags.seconds / 2 / kPairs;
  Busy busy;
  std::vector<double> percents;
  for (std::size_t pair = 0; pair < kPairs; ++pair) {
    std::int64_t slept_alone = 0;
    double without = 0;
    if (pair % 2 == 0) without = compute_for(seconds, slept_alone);
    double with = 0;
    {
      const kolo::Session session;
      work(flags.steps);
      kolo::barrier();
      compute();  // until the engines of all ranks have gone to sleep
      with = compute_for(seconds, busy.slept);
    }
    if (pair % 2 != 0) without = compute_for(seconds, slept_alone);
    percents.push_back(100 * (with / without - 1));
  }
  std::sort(percents.begin(), percents.end());
  busy.percent = percents[kPairs / 2];
  busy.low = percents[kBelow];
  busy.high = percents[kPairs - 1 - kBelow];
  return busy;
}

bool run_busy(const Flags& flags) {
  const Busy mine = compare(flags);
  const kolo::Session session;
  Busy slowest = mine;
  std::int64_t slept = 0;
  for (const Busy& one : kolo::allgather_object(mine)) {
    if (one.percent > slowest.percent) slowest = one;
    slept += one.slept;
  }
  const bool good = slowest.low < flags.limit_percent;
  if (kolo::rank() == 0) {
    std::printf(
        "%s: on the slowest rank computing took %.2f %% (%.2f to %.2f) longer beside an idle engine; engines woke up "
        "%lld times\n",
        good ? "good" : "MISSED", slowest.percent, slowest.low, slowest.high, static_cast<long long>(slept));
    std::fflush(stdout);
  }
  return good;
}

/// False: help or the version was printed, nothing is to be done.
bool parse(int argc, char** argv, Flags& flags) {
  po::options_description options("flags");
  auto add = options.add_options();
  add("help,h", "print this");
  add("version", "print the library's version");
  add("seconds", po::value(&flags.seconds)->value_name("S")->default_value(flags.seconds), "how long to be idle");
  add("steps", po::value(&flags.steps)->value_name("N")->default_value(flags.steps),
      "how many small training steps to run before");
  add("limit-ms", po::value(&flags.limit_ms)->value_name("MS")->default_value(flags.limit_ms),
      "how much CPU time a rank may use meanwhile");
  add("busy", po::bool_switch(&flags.busy), "compute, in turns with and without an engine, and compare");
  add("limit-percent", po::value(&flags.limit_percent)->value_name("P")->default_value(flags.limit_percent),
      "with --busy: by how much the engine may slow it (missed when the whole interval lies above)");
  po::variables_map given;
  try {
    const auto style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).style(style).run(), given);
    po::notify(given);
  } catch (const po::error& error) {
    throw BadFlags(error.what());
  }
  if (!(flags.seconds >= 0 && flags.seconds <= 86400)) throw BadFlags("--seconds must be from 0 to 86400");
  if (flags.steps < 0) throw BadFlags("--steps must not be negative");
  if (!(flags.limit_percent > 0)) throw BadFlags("--limit-percent must be more than 0");
  if (!(flags.limit_ms > 0)) throw BadFlags("--limit-ms must be more than 0");
  if (given.count("version") != 0) std::cout << "kolo-idle " << kolo::version() << "\n";
  if (given.count("help") == 0) return given.count("version") == 0;
  std::cout << "Measures the CPU time of an engine with nothing to do, in every rank of the job.\n\n"
            << "usage: mpirun -np N kolo-idle [flags]\n\n"
            << options << "\nExit status: 0 all ranks used less than the limit, 1 one did not or the job failed, "
            << "2 the flags are wrong.\n";
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (!parse(argc, argv, flags)) return 0;
    return (flags.busy ? run_busy(flags) : run_idle(flags)) ? 0 : 1;
  } catch (const BadFlags& error) {
    std::cerr << "kolo-idle: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-idle: " << error.what() << "\n";
    return 1;
  }
}
