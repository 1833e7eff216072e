// SPDX-License-Identifier: Apache-2.0
//
// What all ranks do together, derived by each from one seed: worlds (a run of steps with settings of their own), and in
// each the steps, and in each the operations. No rank tells another anything; what is each rank's own (the order in
// which it submits, from which threads, when it waits) it draws elsewhere (rank.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include <kolo/options.hpp>

#include "tests/support/operation.hpp"
#include "tests/support/random.hpp"

namespace kolo::soak {

using testing::chance;
using testing::draw;
using testing::Kind;
using testing::Operation;
using testing::Random;
using testing::random_of;

/// How large a soak's tensors may be.
struct Limits {
  int ranks = 4;
  std::int64_t most_elements = 1 << 20;
};

/// The settings of a world, unusual ones among them: tiny slots and rings, one name known at a time, no plans, virtual
/// nodes.
Options options_of(std::uint64_t seed, std::uint64_t world, int ranks);
/// The requests that a world prepares when it begins.
std::vector<Operation> prepared_of(std::uint64_t seed, std::uint64_t world, const Limits& limits);

struct Step {
  std::vector<Operation> operations;  ///< different names
  bool ends = true;                   ///< with end_step()
  int unnamed = 0;                    ///< so many synchronous calls without a name follow
  bool new_arena = false;             ///< before all else
};
/// Often the same list as the step before, so that plans are made; often not, so that they are broken.
Step step_of(std::uint64_t seed, std::uint64_t world, std::uint64_t step, const Limits& limits);

}  // namespace kolo::soak
