// SPDX-License-Identifier: Apache-2.0
//
// Computing and reducing together. The backward pass is arithmetic on a few cached numbers, cut into as many pieces as
// there are gradients, each piece as long as its gradient's share of the model; after each piece its gradient is
// submitted, and at the end the step waits for all. Three times are taken in turns: the computing alone, the reduction
// alone, and both together. Hidden is what of the reduction's time the two together do not take:
//
//     hidden = (computing + reducing - both) / reducing          1: all of it, 0: nothing, below 0: they disturb
//
// Where ranks have a core each and nothing more, as with two ranks on two cores, whatever a reduction costs its CPU
// cannot be hidden; what can be are the waits for the others. The peer submits in the same way by MPI_Iallreduce and
// divides at the end.
//
// With --timeline some more steps are taken in which every gradient's times are noted, and the record has the one of
// median length, as rank 0 saw it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradients.hpp"
#include "modes.hpp"
#include "mpi_peer.hpp"

namespace kolo_bench {
namespace {

using Clock = std::chrono::steady_clock;
using Requests = std::vector<kolo::Prepared>;

double microseconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

/// Arithmetic that a compiler cannot drop.
class Arithmetic {
 public:
  void run(std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (float& x : numbers_) x = x * 0.999F + 0.001F;
    }
    sink_ = numbers_[0];
  }
  double rounds_per_ms() {
    constexpr std::int64_t kRounds = 20'000;
    const auto begin = Clock::now();
    run(kRounds);
    return kRounds / std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

 private:
  std::vector<float> numbers_ = std::vector<float>(1024, 1.0F);
  volatile float sink_ = 0;
};

/// The backward pass: what is computed before each gradient is ready.
class Backward {
 public:
  Backward(Gradients& gradients, double rounds) {
    const auto elements = static_cast<double>(gradients.elements());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const double share = static_cast<double>(gradients.backward(i).elements()) / elements;
      rounds_.push_back(static_cast<std::int64_t>(share * rounds));
    }
  }
  void compute(std::size_t i) { arithmetic_.run(rounds_[i]); }
  void compute_all() {
    for (std::size_t i = 0; i < rounds_.size(); ++i) compute(i);
  }

 private:
  Arithmetic arithmetic_;
  std::vector<std::int64_t> rounds_;
};

std::shared_ptr<Requests> prepare(Gradients& gradients) {
  auto prepared = std::make_shared<Requests>();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    prepared->push_back(kolo::prepare(gradients.name("overlapped", i),
                                      kolo::Call::allreduce(gradients.backward(i).view(), gradients.options())));
  }
  return prepared;
}

std::function<void()> both_by_kolo(const std::shared_ptr<Requests>& prepared,
                                   const std::shared_ptr<Backward>& backward) {
  return [backward, prepared] {
    std::vector<kolo::Handle> handles;
    handles.reserve(prepared->size());
    for (std::size_t i = 0; i < prepared->size(); ++i) {
      backward->compute(i);
      handles.push_back((*prepared)[i].start());
    }
    kolo::wait_all(handles);
    kolo::end_step();
  };
}

std::function<void()> both_by_mpi(const std::shared_ptr<Gradients>& gradients,
                                  const std::shared_ptr<Backward>& backward) {
  return [gradients, backward] {
    MpiRequests requests;
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      backward->compute(i);
      requests.start_allreduce(gradients->backward(i), gradients->op());
    }
    requests.wait_all(gradients->ranks());
  };
}

/// One step, in microseconds from its begin; gradients in backward order.
struct Timeline {
  std::vector<double> submitted;  ///< the gradient is computed; its reduction starts and the next one's computing
  std::vector<double> done;       ///< its reduction has completed
  double end = 0;                 ///< all have, and the program goes on
};

/// What the callbacks of a step note. They share it, as they may come after the wait.
struct Completions {
  explicit Completions(std::size_t count) : times(count), open(count) {}
  std::vector<Clock::time_point> times;
  std::atomic<std::size_t> open;
};

Timeline watch_step(Requests& prepared, Backward& backward) {
  auto completions = std::make_shared<Completions>(prepared.size());
  Timeline timeline;
  std::vector<kolo::Handle> handles;
  handles.reserve(prepared.size());
  timeline.submitted.reserve(prepared.size());
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    backward.compute(i);
    timeline.submitted.push_back(microseconds_between(begin, Clock::now()));
    handles.push_back(prepared[i].start());
    handles.back().on_done([completions, i](const kolo::Status&) {
      completions->times[i] = Clock::now();
      completions->open.fetch_sub(1);
    });
  }
  kolo::wait_all(handles);
  kolo::end_step();
  timeline.end = microseconds_between(begin, Clock::now());
  while (completions->open.load() > 0) {
  }
  for (const Clock::time_point time : completions->times) timeline.done.push_back(microseconds_between(begin, time));
  return timeline;
}

/// The step of median length, of this rank.
Timeline watch_steps(Bench& bench, Requests& prepared, Backward& backward) {
  constexpr std::size_t kSteps = 21;
  std::vector<Timeline> steps;
  while (steps.size() < kSteps) {
    bench.job.barrier();
    steps.push_back(watch_step(prepared, backward));
  }
  const auto middle = steps.begin() + kSteps / 2;
  std::nth_element(steps.begin(), middle, steps.end(),
                   [](const Timeline& a, const Timeline& b) { return a.end < b.end; });
  return *middle;
}

nlohmann::ordered_json record_of(Timeline timeline, Gradients& gradients) {
  const auto to_tenths = [](double value) { return std::round(10 * value) / 10; };
  for (std::vector<double>* times : {&timeline.submitted, &timeline.done}) {
    std::transform(times->begin(), times->end(), times->begin(), to_tenths);
  }
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < gradients.size(); ++i) bytes.push_back(gradients.backward(i).bytes());
  return {{"bytes", bytes},
          {"submitted_us", timeline.submitted},
          {"done_us", timeline.done},
          {"end_us", to_tenths(timeline.end)}};
}

struct Times {
  Measured compute, reduce, both;

  [[nodiscard]] double hidden() const {
    const double apart = compute.microseconds.median + reduce.microseconds.median;
    return (apart - both.microseconds.median) / reduce.microseconds.median;
  }
};

std::string line_of(const std::string& name, const Times& times) {
  char line[160];
  std::snprintf(line, sizeof line, "  %-16s %12.1f %12.1f %12.1f %8.0f %% %8s", name.c_str(),
                times.compute.microseconds.median, times.reduce.microseconds.median, times.both.microseconds.median,
                100 * times.hidden(), format_wrong(times.both.wrong).c_str());
  return line;
}

nlohmann::ordered_json record_of(const Times& times) {
  const Summary& both = times.both.microseconds;
  return {{"time_us", both.median},
          {"time_p10_us", both.p10},
          {"time_p90_us", both.p90},
          {"compute_us", times.compute.microseconds.median},
          {"reduce_us", times.reduce.microseconds.median},
          {"hidden", times.hidden()},
          {"wrong", times.both.wrong}};
}

/// How many rounds of arithmetic last as long as is wanted, the same on all ranks.
double rounds_wanted(Bench& bench, const std::function<void()>& reduce) {
  double wanted_ms = bench.flags.compute_ms;
  for (int i = 0; i < 3; ++i) {  // the first ones learn names, plans and pages
    bench.job.barrier();
    const auto begin = Clock::now();
    reduce();
    const double took = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (bench.flags.compute_ms == 0) wanted_ms = took;
  }
  std::vector<double> agreed{wanted_ms * Arithmetic().rounds_per_ms()};
  bench.job.max(agreed);
  return agreed[0];
}

}  // namespace

void run_overlap(Bench& bench, Report& report) {
  const Flags& flags = bench.flags;
  auto gradients = std::make_shared<Gradients>(flags, bench.job.rank(), bench.job.size());
  gradients->fill();
  const std::function<void()> reduce = step_by_kolo(gradients, Submission::prepared);
  auto backward = std::make_shared<Backward>(*gradients, rounds_wanted(bench, reduce));
  const auto fill = [gradients] { gradients->fill(); };
  const auto check = [gradients] { return gradients->count_wrong(); };
  const std::shared_ptr<Requests> prepared = prepare(*gradients);
  std::vector<Contestant> contestants{
      {"compute", [] {}, [backward] { backward->compute_all(); }, [] { return std::int64_t{0}; }},
      {"kolo", fill, reduce, check},
      {"kolo", fill, both_by_kolo(prepared, backward), check}};
  for (const Baseline baseline : flags.baselines) {
    contestants.push_back({to_string(baseline), fill, step_by_mpi(gradients, baseline), check});
    contestants.push_back({to_string(baseline), fill, both_by_mpi(gradients, backward), check});
  }
  bench.progress.begin("overlap " + flags.model.name);
  const std::vector<Measured> measured = measure(bench, contestants);
  const Times own{measured[0], measured[1], measured[2]};
  nlohmann::ordered_json record{
      {"collective", "overlap"},      {"model", flags.model.name},
      {"tensors", gradients->size()}, {"bytes", gradients->elements() * static_cast<std::int64_t>(sizeof(float))},
      {"dtype", "float32"},           {"op", std::string(to_string(gradients->op()))},
      {"arena", flags.arena}};
  record.update(record_of(own));
  std::string lines = "#                     computing     reducing         both   hidden   #wrong\n";
  lines += line_of("kolo", own);
  for (std::size_t i = 3; i + 1 < measured.size(); i += 2) {
    const Times peer{measured[0], measured[i], measured[i + 1]};
    lines += "\n" + line_of(peer.both.name, peer);
    record["baseline"][peer.both.name] = record_of(peer);
    record["baseline"][peer.both.name]["ratio"] = peer.both.microseconds.median / own.both.microseconds.median;
  }
  if (flags.timeline) record["timeline"] = record_of(watch_steps(bench, *prepared, *backward), *gradients);
  for (const Measured& one : measured) report.count_wrong(one.wrong);
  report.add_lines(lines, std::move(record));
}

}  // namespace kolo_bench
