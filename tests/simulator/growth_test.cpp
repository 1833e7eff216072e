// SPDX-License-Identifier: Apache-2.0
//
// What training costs the control plane, by the number of ranks: the first steps, in which names are declared and a
// plan is made; each step afterwards; and the end, when all leave. The numbers are printed (docs/performance.md has
// them).
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/settings.hpp"
#include "tests/simulator/programs.hpp"
#include "tests/simulator/world.hpp"
#include "tests/support/sanitized.hpp"

namespace kolo::simulator {
namespace {

constexpr int kTensors = 5;
constexpr int kFirstSteps = 4;
constexpr int kMoreSteps = 2;
constexpr int kPerNode = 8;

struct Cost {
  double heard = 0;        ///< messages that the sequencer hears
  double up = 0;           ///< between nodes, up
  double up_bytes = 0;     ///< of these
  double entries = 0;      ///< of the log, which every node gets
  double entry_bytes = 0;  ///< of these
};

Cost difference(const Traffic& a, const Traffic& b, double steps = 1) {
  const auto less = [steps](std::uint64_t x, std::uint64_t y) {
    return (static_cast<double>(x) - static_cast<double>(y)) / steps;
  };
  return {less(a.sequencer, b.sequencer), less(a.link_messages, b.link_messages), less(a.link_bytes, b.link_bytes),
          less(a.entries, b.entries), less(a.entry_bytes, b.entry_bytes)};
}

/// Of a whole job.
Traffic traffic_of(int ranks, int steps) {
  Options options;
  options.ranks = ranks;
  options.ranks_per_node = kPerNode;
  options.fanout = 8;  // KOLO_TREE_FANOUT's default
  World world(options, allreduces(kTensors + 1));
  for (int rank = 0; rank < ranks; ++rank) {
    world.set_program(rank, training_program({kTensors, steps, 0, false, true}, 1));
  }
  EXPECT_EQ(world.run(), "") << ranks << " ranks";
  return world.traffic();
}

void print(const char* part, int ranks, const Cost& cost) {
  std::printf("%-12s %5d %5d %7.0f %7.0f %9.0f %8.0f %11.0f\n", part, ranks, ranks / kPerNode, cost.heard, cost.up,
              cost.up_bytes, cost.entries, cost.entry_bytes);
}

/// And GROWTH_RANKS: 4,096 take half a minute, most of it until each rank has heard that each other one has left.
std::vector<int> sizes() {
  std::vector<int> all = testing::and_unless_sanitized<int>({8, 64}, {512});
  if (const auto more = base::process_environment()("GROWTH_RANKS")) all.push_back(std::stoi(*more));
  return all;
}

TEST(Growth, AStepCostsRank0AsMuchHoweverManyRanksThereAre) {
  std::printf("%-12s %5s %5s %7s %7s %9s %8s %11s\n", "", "ranks", "nodes", "heard", "up", "bytes up", "entries",
              "bytes down");
  for (const int ranks : sizes()) {
    const Traffic end = traffic_of(ranks, 0);
    const Traffic first = traffic_of(ranks, kFirstSteps);
    const Cost planned = difference(traffic_of(ranks, kFirstSteps + kMoreSteps), first, kMoreSteps);
    print("first steps", ranks, difference(first, end));
    print("each later", ranks, planned);
    print("the end", ranks, difference(end, {}));
    const int links = ranks / kPerNode - 1;
    EXPECT_EQ(planned.entries, 1) << ranks << " ranks";
    EXPECT_LE(planned.heard, kTensors + 2) << ranks << " ranks";
    EXPECT_LE(planned.up, links * (kTensors + 2)) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace kolo::simulator
