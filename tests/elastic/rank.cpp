// SPDX-License-Identifier: Apache-2.0
//
// A process of an elastic job that meets anew by hand (launch/next_generation.hpp), for tests/elastic/elastic_test.py
// and `scripts/test chaos --elastic`.
//
//     kolo-run -np 4 --min-np 2 elastic_rank FOLDER [--late N] [--worker] [--steps N]
//
// It "trains" until there is a file FOLDER/finish, or for N steps: each step checks a sum of all ranks, then changes
// the weights, which follow from the number of steps alone. After a change the ranks that were there go on where they
// were, and new ones get the weights. SIGTERM: it leaves with the others' next step. SIGUSR1: it computes for three
// seconds without a call of Kolo's. --late: the first N processes that make a folder FOLDER/late-I want in when
// somebody writes to the pipe FOLDER/pipe-I. --worker: a process of its own runs beside it, and ends only when it is
// killed.
//
// What happens is said on standard output, a line each:
//
//     here pid P | worker pid P of P | in G rank R of N pid P step K | out G pid P step K: CODE SENTENCE
//     next G pid P | done pid P step K | farewell pid P: SENTENCE | wrong pid P: SENTENCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kolo/kolo.hpp>

#include "base/settings.hpp"
#include "launch/next_generation.hpp"

namespace {

using kolo::launch::Generation;
using kolo::launch::Generations;

std::atomic<bool> g_is_to_leave{false};
std::atomic<bool> g_is_to_compute{false};

/// Whole lines at once: others write to the same pipe.
void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) std::abort();
}

const std::string& me() {
  static const std::string text = "pid " + std::to_string(::getpid());
  return text;
}

[[noreturn]] void fail(const std::string& what) {
  say("wrong " + me() + ": " + what);
  std::exit(70);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

struct Arguments {
  std::string folder;
  int late = 0;
  bool has_worker = false;
  std::int64_t steps = -1;
};

/// What a rank keeps from one generation to the next.
struct Training {
  static constexpr std::size_t kWeights = 1000;

  std::int64_t step = 0;
  std::vector<std::int64_t> weights = std::vector<std::int64_t>(kWeights, 0);

  static std::int64_t change(std::int64_t step, std::size_t i) {
    return (step % 1009 + 1) * static_cast<std::int64_t>(i % 7 + 1);
  }
  void apply() {
    for (std::size_t i = 0; i < kWeights; ++i) weights[i] += change(step, i);
    ++step;
  }
  void check() const {
    std::vector<std::int64_t> due(7, 0);
    for (std::int64_t s = 0; s < step; ++s) {
      for (std::size_t i = 0; i < due.size(); ++i) due[i] += change(s, i);
    }
    for (std::size_t i = 0; i < kWeights; ++i) {
      if (weights[i] != due[i % 7])
        fail("weight " + std::to_string(i) + " is not that of step " + std::to_string(step));
    }
  }
};

kolo::AllreduceOptions by(kolo::ReduceOp op) { return kolo::AllreduceOptions{}.with_op(op); }

/// All ranks get the state of the lowest of those that are furthest.
void meet(Training& training, int rank) {
  const auto size = static_cast<std::size_t>(kolo::size());
  std::vector<std::int64_t> steps(size, 0);
  steps[static_cast<std::size_t>(rank)] = training.step;
  kolo::allreduce("steps", kolo::view(steps), by(kolo::ReduceOp::sum));
  const auto furthest = std::max_element(steps.begin(), steps.end());
  for (const std::int64_t one : steps) {
    if (one != 0 && *furthest - one > 1) fail("ranks are more than a step apart");
  }
  training.step = *furthest;
  kolo::broadcast("weights", kolo::view(training.weights), static_cast<int>(furthest - steps.begin()));
  training.check();
}

/// A step that all ranks make. What they agree on: 0 go on, 1 a change is due, 2 the work is done.
std::int64_t take_step(Training& training, std::int64_t wish) {
  const auto size = static_cast<std::int64_t>(kolo::size());
  std::vector<std::int64_t> sum(Training::kWeights);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = (kolo::rank() + 1) * (training.step % 97 + 1) + static_cast<std::int64_t>(i);
  }
  kolo::allreduce("gradient", kolo::view(sum), by(kolo::ReduceOp::sum));
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::int64_t due = size * (size + 1) / 2 * (training.step % 97 + 1) + size * static_cast<std::int64_t>(i);
    if (sum[i] != due)
      fail("element " + std::to_string(i) + " of a sum of " + std::to_string(size) + " ranks is wrong");
  }
  training.apply();
  std::array<std::int64_t, 1> wishes = {wish};
  kolo::allreduce("wish", kolo::view(wishes), by(kolo::ReduceOp::max));
  return wishes[0];
}

void compute_for_long() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// Until the ranks agree to end this generation. True: the work is done.
bool train(Training& training, Generations& generations, const Arguments& arguments) {
  bool has_asked = false;
  while (true) {
    if (g_is_to_leave && !std::exchange(has_asked, true)) generations.leaving();
    if (g_is_to_compute.exchange(false)) compute_for_long();
    std::int64_t wish = generations.change_is_due() ? 1 : 0;
    const bool is_done =
        arguments.steps >= 0 ? training.step + 1 >= arguments.steps : exists(arguments.folder + "/finish");
    if (wish == 0 && is_done) wish = 2;
    const std::int64_t agreed = take_step(training, wish);
    if (agreed != 0) return agreed == 2;
  }
}

/// One generation. True: the work is done, on all ranks.
bool live(const Generation& generation, Training& training, Generations& generations, const Arguments& arguments) {
  const std::string number = std::to_string(generation.number);
  std::optional<kolo::Context> context;
  bool is_done = false;
  try {
    context.emplace(generation.options());
    generations.started();
    const kolo::ContextGuard guard(*context);
    meet(training, generation.rank);
    say("in " + number + " rank " + std::to_string(generation.rank) + " of " + std::to_string(generation.size) + " " +
        me() + " step " + std::to_string(training.step));
    is_done = train(training, generations, arguments);
    context->shutdown();
    say("out " + number + " " + me() + " step " + std::to_string(training.step) + ": in order");
  } catch (const kolo::Error& error) {
    is_done = false;
    say("out " + number + " " + me() + " step " + std::to_string(training.step) + ": " +
        kolo::to_string(error.code()).data() + " " + error.status().message());
  }
  context.reset();
  return is_done && generations.finish();
}

void start_worker() {
  const pid_t parent = ::getpid();
  const pid_t worker = ::fork();
  if (worker < 0) fail("fork");
  if (worker != 0) return;
  std::signal(SIGTERM, SIG_IGN);
  say("worker " + me() + " of " + std::to_string(parent));
  while (true) ::pause();
}

void be_late(const Arguments& arguments) {
  for (int i = 0; i < arguments.late; ++i) {
    if (::mkdir((arguments.folder + "/late-" + std::to_string(i)).c_str(), 0700) != 0) continue;
    const int pipe =
        ::open((arguments.folder + "/pipe-" + std::to_string(i)).c_str(), O_RDONLY);  // waits for the writer
    if (pipe < 0) fail("there is no pipe to wait at");
    ::close(pipe);
    return;
  }
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--worker") {
      arguments.has_worker = true;
    } else if (word == "--late" && i + 1 < argc) {
      arguments.late = std::atoi(argv[++i]);
    } else if (word == "--steps" && i + 1 < argc) {
      arguments.steps = std::atoll(argv[++i]);
    } else {
      arguments.folder = word;
    }
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  std::signal(SIGTERM, [](int) { g_is_to_leave = true; });
  std::signal(SIGUSR1, [](int) { g_is_to_compute = true; });
  say("here " + me());
  if (arguments.has_worker) start_worker();
  be_late(arguments);
  Training training;
  try {
    Generations generations(kolo::base::process_environment());
    while (const std::optional<Generation> next = generations.next()) {
      say("next " + std::to_string(next->number) + " " + me());
      if (live(*next, training, generations, arguments)) break;
    }
    if (generations.farewell() != "the work is done") {
      say("farewell " + me() + ": " + generations.farewell());
      return g_is_to_leave ? 0 : 3;
    }
    say("done " + me() + " step " + std::to_string(training.step));
    return 0;
  } catch (const kolo::Error& error) {
    say("farewell " + me() + ": " + error.status().message());
    return 4;
  }
}
