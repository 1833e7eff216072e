// SPDX-License-Identifier: Apache-2.0
//
// Many small random worlds, each watched by the checker after every event.
#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulator/programs.hpp"
#include "tests/simulator/world.hpp"
#include "tests/support/schedules.hpp"

namespace kolo::simulator {
namespace {

Options random_options(std::mt19937_64& random) {
  Options options;
  options.ranks = static_cast<int>(1 + random() % 9);
  options.ranks_per_node = static_cast<int>(1 + random() % 4);
  options.fanout = static_cast<int>(1 + random() % 3);
  options.seed = random();
  options.link_delay = random() % 60;
  options.pause = random() % 30;
  options.batch_duration = random() % 80;
  const std::int64_t thresholds[] = {0, 200, 600, 1 << 20};
  options.fusion_threshold = thresholds[random() % 4];
  options.open_batches = 1 + random() % 4;
  options.plan = random() % 4 != 0;
  options.asks = options.seed % 3 == 0 ? 20 : 0;
  return options;
}

/// `passed` grows by the calls that have avoided the log.
std::string run_random(std::uint64_t seed, const Random& shape, std::uint32_t capacity, int priorities = 1,
                       std::uint64_t* passed = nullptr) {
  std::mt19937_64 random(seed);
  Options options = random_options(random);
  options.capacity = capacity;
  const int count = RandomPrograms::kSignatures;
  World world(options, priorities > 1 ? allreduces(count, priorities) : allreduces(count));
  RandomPrograms programs(shape, options.ranks, random());
  for (int rank = 0; rank < options.ranks; ++rank) {
    world.set_program(rank, programs.programs()[static_cast<std::size_t>(rank)]);
  }
  std::string violation = world.run();
  if (passed != nullptr) *passed += world.passed();
  return violation;
}

using kolo::testing::Schedules;

/// Worlds of that shape.
void expect_promises(const Random& shape, const Schedules& seeds) {
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ASSERT_EQ(run_random(seed, shape, 4096), "") << "seed " << seed;
  }
}

TEST(RandomWorlds, KeepEveryPromise) { expect_promises(Random{}, {1, 300}); }

TEST(RandomWorlds, KeepEveryPromiseWhereStepsEndByRepetition) {
  Random shape;
  shape.end_steps = false;
  expect_promises(shape, {1000, 150});
}

TEST(RandomWorlds, KeepEveryPromiseWithFewerIdsThanNames) {
  Random shape;
  shape.names = 8;
  shape.sets = 1;
  const Schedules seeds(2000, 200);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    // Three reserved ids, so two to nine for sixteen names.
    ASSERT_EQ(run_random(seed, shape, static_cast<std::uint32_t>(5 + seed % 8)), "") << "seed " << seed;
  }
}

/// Sets are made and dropped all the time, with little to do in each.
TEST(RandomWorlds, KeepEveryPromiseWhereSetsComeAndGo) {
  Random shape;
  shape.names = 3;
  shape.phases = 40;
  shape.sets = 3;
  expect_promises(shape, {4000, 100});
}

/// Joins all the time, with few ids, so that names lose theirs while ranks are absent.
TEST(RandomWorlds, KeepEveryPromiseWhereRanksJoin) {
  Random shape;
  shape.names = 6;
  shape.phases = 30;
  shape.sets = 1;
  const Schedules seeds(6000, 300);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ASSERT_EQ(run_random(seed, shape, static_cast<std::uint32_t>(5 + seed % 12)), "") << "seed " << seed;
  }
}

/// Little else than calls without a name: some ranks wait for them, some do not, and some of them avoid the log.
TEST(RandomWorlds, KeepEveryPromiseWhereTheOrderOfCallsIsTheName) {
  Random shape;
  shape.names = 2;
  shape.phases = 30;
  const Schedules seeds(7000, 400);
  std::uint64_t passed = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    shape.sets = static_cast<int>(seed % 3);
    shape.mismatches = seed % 4 != 0;
    ASSERT_EQ(run_random(seed, shape, 4096, 1, &passed), "") << "seed " << seed;
  }
  EXPECT_GT(passed, seeds.end - seeds.first);
}

/// What is urgent overtakes: with few and with many ids, with and without ends of steps.
TEST(RandomWorlds, KeepEveryPromiseWithPriorities) {
  Random shape;
  shape.phases = 20;
  const Schedules seeds(9000, 300);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    shape.names = seed % 2 == 0 ? 12 : 6;
    shape.end_steps = seed % 3 != 0;
    shape.mismatches = shape.changes = seed % 5 != 0;
    const std::uint32_t capacity = seed % 4 == 0 ? static_cast<std::uint32_t>(5 + seed % 12) : 4096;
    ASSERT_EQ(run_random(seed, shape, capacity, static_cast<int>(2 + seed % 4)), "") << "seed " << seed;
  }
}

/// One rank or two leave, or die, somewhere in their programs. What needs them fails; sets without them go on.
TEST(RandomWorlds, KeepEveryPromiseWhereARankIsGoneSoon) {
  Random shape;
  shape.names = 4;
  shape.phases = 8;
  const Schedules seeds(5000, 3000);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    std::mt19937_64 random(seed);
    Options options = random_options(random);
    options.ranks = static_cast<int>(2 + random() % 5);
    options.ranks_per_node = options.ranks;  // nobody is below the one who goes
    World world(options, allreduces(RandomPrograms::kSignatures));
    RandomPrograms programs(shape, options.ranks, random());
    for (std::uint64_t gone = 0; gone <= seed % 2; ++gone) {
      const auto who = static_cast<int>(1 + random() % static_cast<unsigned>(options.ranks - 1));
      Program& cut = programs.programs()[static_cast<std::size_t>(who)];
      cut.resize(random() % cut.size());
      cut.push_back(random() % 2 == 0 ? leave() : die());
    }
    for (int rank = 0; rank < options.ranks; ++rank) {
      world.set_program(rank, programs.programs()[static_cast<std::size_t>(rank)]);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
  }
}

/// Ranks stop after they have left, leaders of nodes among them. The ranks that a leader cuts off hear no more; nobody
/// waits for them, and the sets without them go on.
TEST(RandomWorlds, KeepEveryPromiseWhereRanksGo) {
  Random shape;
  shape.names = 4;
  shape.phases = 8;
  const Schedules seeds(13000, 1000);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    std::mt19937_64 random(seed);
    Options options = random_options(random);
    options.ranks = static_cast<int>(2 + random() % 8);
    World world(options, allreduces(RandomPrograms::kSignatures));
    RandomPrograms programs(shape, options.ranks, random());
    for (std::uint64_t gone = 0; gone <= seed % 2; ++gone) {
      const auto who = static_cast<int>(1 + random() % static_cast<unsigned>(options.ranks - 1));
      Program& cut = programs.programs()[static_cast<std::size_t>(who)];
      cut.resize(random() % cut.size());
      cut.insert(cut.end(), {leave(), go()});
    }
    for (int rank = 0; rank < options.ranks; ++rank) {
      world.set_program(rank, programs.programs()[static_cast<std::size_t>(rank)]);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
  }
}

/// Requests for the same few sets again and again, by ranks that come early, late or not at all.
TEST(RandomWorlds, KeepEveryPromiseWhereDeadlinesGiveUpSets) {
  const Schedules seeds(11000, 300);
  std::size_t made = 0;
  std::size_t given_up = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    std::mt19937_64 random(seed);
    Options options = random_options(random);
    options.link_delay %= 20;
    options.deadline = 500 + random() % 500;
    World world(options, allreduces(1));
    std::vector<Program> programs(static_cast<std::size_t>(options.ranks));
    for (int phase = 1; phase <= 12; ++phase) {
      const auto without = static_cast<int>(random() % 4);  // few lists, and some below one child of the root
      std::vector<std::int32_t> list;
      for (int rank = 0; rank < options.ranks; ++rank) {
        if (rank % 3 != without) list.push_back(rank);
      }
      for (const std::int32_t rank : list) {
        Program& program = programs[static_cast<std::size_t>(rank)];
        if (random() % 4 == 0) program.push_back(pause(random() % (2 * options.deadline)));
        if (random() % 12 == 0) continue;
        program.insert(program.end(), {try_set(phase, list), submit("x", 0, phase), drop_set(phase)});
      }
    }
    for (int rank = 0; rank < options.ranks; ++rank) {
      Program& program = programs[static_cast<std::size_t>(rank)];
      program.insert(program.end(), {wait_all(), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (const control::LogEntry& entry : world.log()) {
      const auto* const failed = std::get_if<control::Failed>(&entry);
      made += std::holds_alternative<control::SetAdded>(entry) ? 1U : 0U;
      given_up += failed != nullptr && failed->code == ErrorCode::expired ? 1U : 0U;
    }
  }
  EXPECT_GT(made, seeds.end - seeds.first);
  EXPECT_GT(given_up, seeds.end - seeds.first);
}

TEST(RandomWorlds, KeepEveryPromiseWhenNothingIsIrregular) {
  Random shape;
  shape.mismatches = shape.changes = shape.unnamed = shape.churn = shape.joins = false;
  shape.sets = 0;
  shape.phases = 25;
  const Schedules seeds(3000, 150);
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ASSERT_EQ(run_random(seed, shape, 4096), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace kolo::simulator
