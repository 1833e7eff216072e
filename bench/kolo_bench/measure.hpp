// SPDX-License-Identifier: Apache-2.0
//
// How time is taken. The contestants of a row take turns, sample by sample, so that whatever the machine does to one
// it does to all. A sample is the mean of so many calls in a row that it lasts about a tenth of a millisecond (one
// call, when that takes longer), begins behind a barrier, and counts as long as the slowest rank took.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flags.hpp"
#include "job.hpp"
#include "samples.hpp"

namespace kolo_bench {

struct Contestant {
  std::string name;                     ///< "kolo", "mpi", ...
  std::function<void()> prepare;        ///< fills inputs, poisons outputs
  std::function<void()> call;           ///< what is timed
  std::function<std::int64_t()> check;  ///< after prepare and one call: wrong elements on this rank
};

struct Measured {
  std::string name;
  Summary microseconds;
  std::size_t samples = 0;
  std::int64_t wrong = -1;  ///< on all ranks; -1: not checked
};

/// All contestants, in their order. Collective.
std::vector<Measured> measure(Job& job, const Flags& flags, std::vector<Contestant> contestants);

}  // namespace kolo_bench
