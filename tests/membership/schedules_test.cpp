// SPDX-License-Identifier: Apache-2.0
//
// The keeper in simulated jobs: random schedules, and all schedules of three processes. For 105,000 random ones:
//
//     membership_test --gtest_filter='RandomJobs.*' --gtest_shuffle --gtest_random_seed=1 --gtest_repeat=7
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/membership/world.hpp"
#include "tests/support/schedules.hpp"

namespace kolo::membership {
namespace {

using kolo::testing::Schedules;

template <class Random>
int below(Random& random, int bound) {
  return static_cast<int>(random() % static_cast<unsigned>(bound));
}

/// How often something has happened in many schedules: what never happens is not tested.
struct Seen {
  std::uint64_t generations = 0, kills = 0, respawns = 0, given_up = 0, done = 0;
};

std::string run_random(std::uint64_t seed, Seen& seen) {
  std::mt19937_64 random(seed);
  JobLimits limits;
  const int processes = 1 + below(random, 6);
  limits.most = 1 + below(random, 7);
  limits.first = std::min(limits.most, processes);
  limits.least = 1 + below(random, limits.first);
  limits.respawns = random() % 2 == 0 ? kNoLimit : 0;
  Faults faults;
  for (int* one : {&faults.deaths, &faults.stops, &faults.frozen, &faults.pauses, &faults.joins, &faults.leaves,
                   &faults.errors, &faults.silences, &faults.losses, &faults.exits, &faults.ends}) {
    if (random() % 3 == 0) *one = 1 + below(random, 2);
  }
  faults.deaths += below(random, 3);
  World world(limits, processes, 1 + below(random, 4), faults, random() % 3 == 0);
  const unsigned calm = 5 + static_cast<unsigned>(below(random, 60));  // steps for each fault
  for (int step = 0; step < 20000 && world.broken().empty(); ++step) {
    std::vector<World::Choice> choices = world.steps();
    const bool is_quiet = choices.empty();
    const std::vector<World::Choice> wrong = world.faults();
    if (!wrong.empty() && (is_quiet || random() % calm == 0)) choices = wrong;
    const std::vector<World::Choice> times = world.times();
    if (!times.empty() && ((is_quiet && (world.is_awaited() || random() % 2 == 0)) || random() % (2 * calm) == 0)) {
      choices = times;
    }
    if (choices.empty() || (is_quiet && wrong.empty() && !world.is_awaited())) {
      seen.generations += world.generation();
      seen.kills += static_cast<std::uint64_t>(world.kills());
      seen.respawns += static_cast<std::uint64_t>(world.respawns());
      (world.keeper().gave_up() ? seen.given_up : seen.done) += world.keeper().ended().empty() ? 0 : 1;
      return world.verdict();
    }
    world.take(choices[random() % choices.size()]);
  }
  return world.broken().empty() ? "it never comes to rest" : world.broken();
}

TEST(RandomJobs, KeepEveryPromise) {
  const Schedules seeds(1, 15000);
  Seen seen;
  for (std::uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ASSERT_EQ(run_random(seed, seen), "") << "seed " << seed;
  }
  const std::uint64_t all = seeds.end - seeds.first;
  EXPECT_GT(seen.generations, all);
  EXPECT_GT(seen.kills, all / 10);
  EXPECT_GT(seen.respawns, all / 10);
  EXPECT_GT(seen.given_up, all / 20);
  EXPECT_GT(seen.done, all / 20);
}

/// Everything that can happen to a few processes, in every order.
struct Explored {
  std::set<World> seen;
  std::string broken;

  void visit(const World& world) {
    std::vector<World> left{world};
    while (!left.empty() && broken.empty()) {
      const World here = std::move(left.back());
      left.pop_back();
      if (!seen.insert(here).second) continue;
      std::vector<World::Choice> choices = here.steps();
      const bool is_quiet = choices.empty();
      for (const World::Choice& fault : here.faults()) choices.push_back(fault);
      if ((is_quiet && here.is_awaited()) || here.somebody_is_stopped()) {
        for (const World::Choice& time : here.times()) choices.push_back(time);
      }
      if (is_quiet && !here.is_awaited()) broken = here.verdict();
      for (const World::Choice& choice : choices) {
        World& next = left.emplace_back(here);
        next.take(choice);
        if (!next.broken().empty()) broken = next.broken();
      }
    }
  }
};

/// A world whose first generation runs.
World running(const JobLimits& limits, const Faults& faults, bool finishes = false, int processes = 3) {
  World world(limits, processes, processes, faults, finishes);
  const auto is_other = [](const World::Choice& step) { return step.what != World::What::finish; };
  while (true) {
    const std::vector<World::Choice> steps = world.steps();
    const auto next = std::find_if(steps.begin(), steps.end(), is_other);
    if (next == steps.end()) return world;
    world.take(*next);
  }
}

std::size_t explore(const World& world) {
  Explored all;
  all.visit(world);
  EXPECT_EQ(all.broken, "");
  return all.seen.size();
}

JobLimits of_three(int least, bool respawns = false) {
  JobLimits limits;
  limits.first = limits.most = 3;
  limits.least = least;
  limits.respawns = respawns ? kNoLimit : 0;
  return limits;
}

TEST(AllSchedulesOfThree, ADeathAtEveryNoticeFromTheBeginning) {
  Faults faults;
  faults.deaths = 1;
  EXPECT_GT(explore(World(of_three(2), 3, 3, faults, false)), 10000U);
}

TEST(AllSchedulesOfThree, TwoDeaths) {
  Faults faults;
  faults.deaths = 2;
  EXPECT_GT(explore(running(of_three(2), faults)), 1000U);
}

TEST(AllSchedulesOfThree, AJoinAmidADeath) {
  Faults faults;
  faults.deaths = faults.joins = 1;
  EXPECT_GT(explore(running(of_three(1), faults, false, 2)), 1000U);
}

TEST(AllSchedulesOfThree, ADeathAndARespawn) {
  Faults faults;
  faults.deaths = 1;
  EXPECT_GT(explore(running(of_three(3, true), faults)), 100U);
}

TEST(AllSchedulesOfThree, AStoppedRankAtTheEndOfTheWork) {
  Faults faults;
  faults.stops = 1;
  faults.times = 8;
  EXPECT_GT(explore(running(of_three(2), faults, true)), 1000U);
}

TEST(AllSchedulesOfThree, AFrozenRank) {
  Faults faults;
  faults.frozen = 1;
  faults.times = 6;
  EXPECT_GT(explore(running(of_three(2), faults)), 1000U);
}

TEST(AllSchedulesOfThree, OneThatLeavesAmidAnError) {
  Faults faults;
  faults.leaves = faults.errors = 1;
  EXPECT_GT(explore(running(of_three(2), faults)), 1000U);
}

}  // namespace
}  // namespace kolo::membership
