// SPDX-License-Identifier: Apache-2.0
//
// How time is taken. The contestants of a row take turns, sample by sample, so that whatever the machine does to one
// it does to all. A sample begins behind a barrier, where nobody keeps a CPU that others need, and counts as long as
// the slowest rank took. It is one call, or, when that is shorter than a tenth of a millisecond, the mean of as many
// calls in a row as last that long, after one that is not counted: a clock and a barrier cost more than the call, and
// who comes after another must fill its caches first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flags.hpp"
#include "job.hpp"
#include "progress.hpp"
#include "samples.hpp"
#include "turns.hpp"

namespace kolo_bench {

class Device;

/// Takes the time of calls. One thread.
class Timer {
 public:
  virtual ~Timer() = default;
  /// Returns when nothing is under way any more that was begun before.
  virtual void settle() = 0;
  virtual void start() = 0;
  /// Microseconds from `start` to the end of what was begun since.
  virtual double stop() = 0;
};
/// By the clock of the host, for calls that return when they are done.
std::shared_ptr<Timer> make_host_timer();

struct Contestant {
  std::string name;                     ///< "kolo", "mpi", ...
  std::function<void()> prepare;        ///< fills inputs, poisons outputs
  std::function<void()> call;           ///< what is timed
  std::function<std::int64_t()> check;  ///< after prepare and one call: wrong elements on this rank; may be empty
  std::function<void()> pause{};        ///< before every timed call, which is a sample by itself then; may be empty
};

struct Measured {
  std::string name;
  std::vector<double> samples;  ///< microseconds, in the order of measuring; every contestant has as many
  Summary microseconds;
  std::int64_t wrong = -1;  ///< on all ranks; -1: not checked
};

/// Where a row is measured.
struct Bench {
  Job& job;
  const Flags& flags;
  std::shared_ptr<Device> device = nullptr;  ///< null: buffers lie in the host's memory
  std::shared_ptr<Timer> timer = make_host_timer();
  Turns turns{flags.turn, job.rank()};
  Progress progress{job.rank() == 0};
};

/// All contestants, in their order; there is at least one. Collective. Throws Interrupted, on all ranks alike.
std::vector<Measured> measure(Bench& bench, const std::vector<Contestant>& contestants);

}  // namespace kolo_bench
