// SPDX-License-Identifier: Apache-2.0
//
// What negotiation promises, one world a promise.
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulator/programs.hpp"
#include "tests/simulator/world.hpp"

namespace kolo::simulator {
namespace {

void set_training(World& world, int ranks, const Training& training, std::uint64_t seed) {
  for (int rank = 0; rank < ranks; ++rank) {
    world.set_program(rank, training_program(training, seed + static_cast<std::uint64_t>(rank)));
  }
}

std::size_t declarations(const World& world, int ranks) {
  std::size_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += world.counters(rank).declared;
  return sum;
}

TEST(Steps, WithGradientsThatGrowMoreUrgentAreCutAsEver) {
  Options options;
  options.fusion_threshold = 500;
  std::vector<std::size_t> batches;
  for (const int step : {0, 1}) {
    std::vector<core::Signature> signatures = allreduces(21);
    for (int i = 0; i < 20; ++i) signatures[static_cast<std::size_t>(i)].priority = step * (20 - i);
    World world(options, signatures);
    set_training(world, 4, Training{20, 12, 0, false, true}, 7);  // the last gradient first
    ASSERT_EQ(world.run(), "");
    const auto plans = entries_of<control::PlanDefined>(world);
    ASSERT_EQ(plans.size(), 1U);
    EXPECT_EQ(world.sequencer_counters().plans_broken, 0U);
    batches.push_back(plans.front().batches.size());
  }
  EXPECT_EQ(batches[0], batches[1]);
}

TEST(Steps, AreFrozenIntoAPlanAfterTheSecond) {
  World world({.fusion_threshold = 500}, allreduces(21));
  set_training(world, 4, Training{20, 12, 0, true, true}, 7);
  ASSERT_EQ(world.run(), "");
  // Each name is declared once by each rank, in the first step, and never again.
  EXPECT_EQ(declarations(world, 4), 80U);
  const auto plans = entries_of<control::PlanDefined>(world);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(world.sequencer_counters().plans_broken, 0U);
  // From the third step on, every step is the plan's batches and nothing else.
  const std::size_t batches = plans.front().batches.size();
  EXPECT_EQ(entries_of<control::PlannedBatch>(world).size(), 10 * batches);
  std::map<TensorId, std::int64_t> bytes_of;
  for (const auto& assigned : entries_of<control::Assigned>(world)) bytes_of[assigned.id] = assigned.signature.bytes();
  std::size_t members = 0;
  for (const auto& batch : plans.front().batches) {
    std::int64_t bytes = 0;
    for (const TensorId id : batch) bytes += bytes_of.at(id);
    members += batch.size();
    EXPECT_LE(bytes, 500);
  }
  EXPECT_EQ(members, 20U);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(world.counters(rank).planned_batches, 10 * batches);
}

TEST(Steps, AreRecognisedByRepetitionWhereNobodyEndsThem) {
  World world(Options{}, allreduces(21));
  set_training(world, 4, Training{20, 12, 0, true, false}, 7);
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(declarations(world, 4), 80U);
  EXPECT_EQ(entries_of<control::PlanDefined>(world).size(), 1U);
  EXPECT_EQ(world.sequencer_counters().plans_broken, 0U);
  EXPECT_GE(world.counters(0).planned_batches, 9U);
}

TEST(Steps, KeepTheirPlanWhileAMetricGoesInBetween) {
  World world(Options{}, allreduces(21));
  set_training(world, 4, Training{20, 20, 5, true, true}, 3);
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(entries_of<control::PlanDefined>(world).size(), 1U);
  EXPECT_EQ(world.sequencer_counters().plans_broken, 0U);
  EXPECT_EQ(declarations(world, 4), 84U);
}

TEST(Steps, AreNeverFrozenWhenPlansAreOff) {
  World world({.plan = false}, allreduces(21));
  set_training(world, 4, Training{20, 6, 0, true, true}, 3);
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(entries_of<control::PlanDefined>(world).size(), 0U);
}

/// Every step: the first half, wait for it, the second half, wait. Nothing but a rank that waits can free the first
/// half from a plan that has both in one batch.
Program skewed_program(int tensors, int steps) {
  Program program;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < tensors; ++i) {
      program.push_back(submit("grad" + std::to_string(i), i));
      if (i == tensors / 2 - 1) program.push_back(wait_all());
    }
    add(program, {wait_all(), end_step()});
  }
  program.push_back(leave());
  return program;
}

TEST(Plans, LearnACutWhereSomebodyWaits) {
  World world(Options{}, allreduces(20));
  for (int rank = 0; rank < 4; ++rank) world.set_program(rank, skewed_program(20, 12));
  ASSERT_EQ(world.run(), "");
  const auto plans = entries_of<control::PlanDefined>(world);
  ASSERT_EQ(plans.size(), 2U);
  EXPECT_EQ(plans[0].batches.size(), 1U);
  ASSERT_EQ(plans[1].batches.size(), 2U);
  EXPECT_EQ(plans[1].batches[0].size(), 10U);
  EXPECT_EQ(plans[1].batches[1].size(), 10U);
  EXPECT_EQ(world.sequencer_counters().plans_broken, 1U);
}

TEST(Plans, AreNotBrokenByARankThatIsMerelyLate) {
  World world(Options{}, allreduces(20));
  for (int rank = 0; rank < 4; ++rank) {
    Program program;
    for (int step = 0; step < 8; ++step) {
      for (int i = 0; i < 20; ++i) {
        program.push_back(submit("grad" + std::to_string(i), i));
        if (rank == 2 && i == 10) program.push_back(pause(2000));
      }
      add(program, {wait_all(), end_step()});
    }
    program.push_back(leave());
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(world.sequencer_counters().plans_broken, 0U);
  EXPECT_EQ(entries_of<control::PlanDefined>(world).size(), 1U);
}

TEST(Plans, AreBrokenByAnOverdueWait) {
  World world({.ranks = 2, .stall_warning = 1000}, allreduces(4));
  for (int rank = 0; rank < 2; ++rank) {
    Program program;
    for (int step = 0; step < 4; ++step) {
      program.push_back(submit("a", 0));
      // In the last step rank 1 goes on late, and meanwhile waits for nothing.
      if (step == 3 && rank == 1) program.push_back(pause(5000));
      add(program, {submit("b", 1), wait_all(), end_step()});
    }
    program.push_back(leave());
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(world.sequencer_counters().plans_broken, 1U);
  // b is missing from rank 1 and was reported; a was not: it only stood in b's batch.
  ASSERT_EQ(world.stalls(0).size(), 1U);
  EXPECT_EQ(world.stalls(0)[0].request.name, "b");
  EXPECT_EQ(world.stalls(0)[0].missing, std::vector<std::int32_t>{1});
}

/// In every step one rank comes long after the others.
std::vector<std::int32_t> awaited_with(int late, bool plan, int ranks_per_node) {
  Options options;
  options.ranks = 8;
  options.ranks_per_node = ranks_per_node;
  options.plan = plan;
  World world(options, allreduces(3));
  for (int rank = 0; rank < options.ranks; ++rank) {
    Program program;
    for (int step = 0; step < 5; ++step) {
      if (rank == late) program.push_back(pause(5000));
      program.insert(program.end(),
                     {submit("a", 0), submit("b", 1), launch(2), wait_all(), wait_launched(), end_step()});
    }
    program.push_back(leave());
    world.set_program(rank, program);
  }
  EXPECT_EQ(world.run(), "");
  EXPECT_EQ(entries_of<control::PlannedBatch>(world).empty(), !plan);
  EXPECT_EQ(entries_of<control::SequenceAppended>(world).size(), 5U);
  std::vector<std::int32_t> awaited;
  for (const auto& batch : entries_of<control::BatchAppended>(world)) awaited.push_back(batch.last);
  for (const auto& batch : entries_of<control::PlannedBatch>(world)) awaited.push_back(batch.last);
  for (const auto& batch : entries_of<control::SequenceAppended>(world)) awaited.push_back(batch.last);
  return awaited;
}

TEST(Batches, SayForWhichRankTheyWaited) {
  for (const int late : {0, 1, 2, 7}) {
    for (const bool plan : {true, false}) {
      for (const int ranks_per_node : {1, 2, 8}) {
        const std::vector<std::int32_t> awaited = awaited_with(late, plan, ranks_per_node);
        EXPECT_EQ(awaited, std::vector<std::int32_t>(awaited.size(), late));
      }
    }
  }
}

TEST(Mismatches, FailOnEveryRankWithOneSentenceAndTheJobGoesOn) {
  auto signatures = allreduces(2);
  signatures[0].tensors[0].shape = Shape{3, 4};
  signatures[1].tensors[0].shape = Shape{4, 3};
  World world(Options{}, signatures);
  for (int rank = 0; rank < 4; ++rank) {
    Program program{submit("layer1.weight", 0),
                    wait_all(),
                    submit("layer1.weight", rank == 1 ? 1 : 0),
                    wait_all(),
                    submit("layer1.weight", 0),
                    wait_all(),
                    leave()};
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(world.failures(rank).size(), 1U);
    EXPECT_EQ(world.failures(rank)[0].code(), ErrorCode::mismatch);
    EXPECT_EQ(world.failures(rank)[0].message(),
              "tensor \"layer1.weight\" of allreduce: ranks disagree about shape: [3, 4] on ranks 0, 2 and 3; [4, 3] "
              "on rank 1. The operation did not run; submit the same on every rank.");
    EXPECT_EQ(world.counters(rank).mismatches, 1U);
  }
}

TEST(Mismatches, OfUnnamedCallsNameTheirNumber) {
  auto signatures = allreduces(2);
  signatures[1] = core::Signature{};
  signatures[1].kind = core::CollectiveKind::barrier;
  World world(Options{}, signatures);
  for (int rank = 0; rank < 4; ++rank) {
    world.set_program(rank, {call(0), call(rank < 3 ? 0 : 1), call(1), leave()});
  }
  ASSERT_EQ(world.run(), "");
  ASSERT_EQ(world.failures(2).size(), 1U);
  EXPECT_EQ(world.failures(2)[0].message(),
            "unnamed call number 2: ranks disagree about the kind of collective: allreduce on ranks 0-2; barrier on "
            "rank 3. The operation did not run; submit the same on every rank.");
}

TEST(Sets, AreMadeByTheirMembersAlone) {
  World world(Options{}, allreduces(2));
  // The others have other things to do, and one of them never comes to an end of it.
  world.set_program(0, {pause(5000), leave()});
  world.set_program(1, {make_set(1, {3, 1}), submit("x", 0, 1), wait("x", 1), drop_set(1), pause(2000), leave()});
  world.set_program(2, {submit("y", 1), pause(3000), leave()});
  world.set_program(3, {make_set(1, {3, 1}), submit("x", 0, 1), wait("x", 1), drop_set(1), pause(2000), leave()});
  ASSERT_EQ(world.run(), "");
  const auto added = entries_of<control::SetAdded>(world);
  ASSERT_EQ(added.size(), 1U);
  EXPECT_EQ(added[0].members, (std::vector<std::int32_t>{3, 1})) << "in the order that its members gave";
  EXPECT_EQ(entries_of<control::SetRemoved>(world).size(), 1U);
}

/// Who makes what is told by the members and the name; the same again is told by the order of calls.
TEST(Sets, OfTheSameMembersAreToldApart) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed}, allreduces(4));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      for (int set = 1; set <= 4; ++set) program.push_back(make_set(set, {0, 1, 2, 3}, set == 3 ? "third" : ""));
      // One name, in flight in all of them at once.
      for (int set = 0; set <= 4; ++set) program.push_back(submit("x", set == 4 ? 0 : set, set));
      program.push_back(wait_all());
      for (int set = 4; set >= 1; --set) program.push_back(drop_set((set + rank) % 4 + 1));
      program.push_back(leave());
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(entries_of<control::SetAdded>(world).size(), 4U);
    EXPECT_EQ(entries_of<control::SetRemoved>(world).size(), 4U);
    EXPECT_TRUE(world.failures(0).empty());
  }
}

TEST(Sets, AreNotMadeWhereMembersDisagreeAboutTheirOrder) {
  World world(Options{}, allreduces(1));
  for (int rank = 0; rank < 4; ++rank) {
    Program program{make_set(1, rank == 2 ? std::vector<std::int32_t>{2, 1, 0} : std::vector<std::int32_t>{0, 1, 2}),
                    submit("x", 0, 1), make_set(2, {2, 0, 1}, "again"), wait_all(), leave()};
    if (rank == 3) program = {leave()};
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(world.failures(rank).size(), 1U);
    EXPECT_EQ(world.failures(rank)[0].message(),
              "the group of ranks 0-2: ranks disagree about the order of its ranks: [0, 1, 2] on ranks 0 and "
              "1; [2, 1, 0] on rank 2. The group was not made; give the same order on every rank.");
  }
  EXPECT_EQ(entries_of<control::SetAdded>(world).size(), 1U);
}

/// A wait names the lists that others gave.
TEST(Sets, ThatAMemberNeverMakesEndAtTheDeadline) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed, .stall_warning = 1000, .deadline = 4000}, allreduces(1));
    world.set_program(0, {make_set(1, {0, 1, 2})});
    world.set_program(1, {pause(300), make_set(1, {0, 1})});
    world.set_program(2, {pause(600), make_set(1, {0, 1, 2})});
    world.set_program(3, {});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.fault(3).message(),
              "the group of ranks 0-2 has not been made within 4 s: rank 1 has not called Group::of or split for it; "
              "rank 1 waits for the group of ranks 0 and 1; all ranks of a group must give the same list and the same "
              "name. The contents of the buffers in flight are undefined.");
    ASSERT_GE(world.stalls(0).size(), 1U);
    EXPECT_EQ(world.stalls(0)[0].request.members, (std::vector<std::int32_t>{0, 1, 2}));
    EXPECT_EQ(world.stalls(0)[0].missing, std::vector<std::int32_t>{1});
  }
}

/// The call fails alone on those that have made it, and in the same way on a rank that comes too late. Each member's
/// second call is matched with the others' second.
TEST(Sets, ThatAMemberMakesTooLateCanFailAlone) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.seed = seed;
    options.deadline = 1000;
    World world(options, allreduces(1));
    for (const int rank : {0, 1, 2}) {
      Program program{try_set(1, {0, 1, 2}, "pair"), try_set(2, {0, 1, 2}, "pair")};
      if (rank == 1) program.insert(program.begin(), pause(1500));
      // The others have given up once, and wait for the second.
      program.insert(program.end(), {submit("x", 0, 1), submit("x", 0, 2), wait_all(), drop_set(2)});
      program.insert(program.end(), {try_set(3, {0, 1, 2}, "pair"), submit("y"), wait_all(), leave()});
      world.set_program(rank, program);
    }
    world.set_program(3, {pause(1400), submit("y"), wait_all(), leave()});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(entries_of<control::SetAdded>(world).size(), 2U);
    for (const int rank : {0, 1, 2}) {
      ASSERT_EQ(world.failures(rank).size(), 1U) << "seed " << seed << ", rank " << rank;
      EXPECT_EQ(world.failures(rank)[0].code(), ErrorCode::expired);
      EXPECT_EQ(world.failures(rank)[0].message(), world.failures(0)[0].message());
    }
    EXPECT_NE(world.failures(0)[0].message().find(": rank 1 has not called Group::of or split for it"),
              std::string::npos);
    EXPECT_TRUE(world.fault(0).ok());
  }
}

/// A member that does not answer is named, too.
TEST(Sets, ThatAStoppedMemberDoesNotMakeCanFailAlone) {
  Options options;
  options.deadline = 1000;
  World world(options, allreduces(1));
  world.set_program(0, {try_set(1, {0, 1, 3}), make_set(2, {0, 1}), drop_set(2)});
  world.set_program(1, {try_set(1, {0, 1, 3}), make_set(2, {0, 1}), drop_set(2)});
  world.set_program(2, {});
  world.set_program(3, {stop()});
  ASSERT_EQ(world.run(), "");
  ASSERT_EQ(world.failures(1).size(), 1U);
  EXPECT_NE(world.failures(1)[0].message().find("rank 3 does not answer"), std::string::npos);
  EXPECT_EQ(entries_of<control::SetAdded>(world).size(), 1U);
}

TEST(Sets, ThatNeedARankThatHasLeftFailSoon) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed}, allreduces(2));
    world.set_program(0, {make_set(1, {0, 2}, "pair"), make_set(2, {0, 1}), submit("x", 0, 2), wait_all(), leave()});
    world.set_program(
        1, {pause(500), make_set(2, {0, 1}), make_set(3, {1, 2, 3}), submit("x", 0, 2), wait_all(), leave()});
    world.set_program(2, {pause(200), leave()});
    world.set_program(3, {make_set(3, {1, 2, 3}), leave()});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    ASSERT_EQ(world.failures(0).size(), 1U);
    EXPECT_EQ(world.failures(0)[0].message(),
              "rank 2 has shut down and will not ask for group \"pair\" of ranks 0 and 2.");
    ASSERT_EQ(world.failures(3).size(), 1U);
    EXPECT_EQ(world.failures(3)[0].message(), "rank 2 has shut down and will not ask for the group of ranks 1-3.");
  }
}

TEST(Sets, AreThereUntilTheLastMemberHasDroppedThem) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed}, allreduces(3));
    for (int rank = 0; rank < 4; ++rank) {
      Program program{make_set(1, {0, 1, 2, 3})};
      for (int step = 0; step < 4; ++step) {
        for (int i = 0; i < 3; ++i) program.push_back(submit("t" + std::to_string(i), i, 1));
        program.push_back(end_step(1));
      }
      // With three in flight, and perhaps planned batches of them running.
      if (rank == 2) program.push_back(pause(1000));
      add(program, {drop_set(1), wait_all(), pause(3000), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(entries_of<control::SetRemoved>(world).size(), 1U);
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(world.failures(rank).empty());
  }
}

TEST(Sets, CanBeMadeAndDroppedForEverInTheSameIds) {
  Options options;
  options.capacity = 4;  // for one name
  World world(options, allreduces(4));
  for (int rank = 0; rank < 4; ++rank) {
    Program program;
    for (int round = 1; round <= 20; ++round) {
      program.push_back(make_set(round, {0, 1, 2, 3}));
      for (int i = 0; i < 3; ++i) program.push_back(submit("x", i, round));
      add(program, {launch(3, round), end_step(round), drop_set(round), wait_all()});
    }
    program.push_back(leave());
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  const auto added = entries_of<control::SetAdded>(world);
  ASSERT_EQ(added.size(), 20U);
  for (const control::SetAdded& set : added) EXPECT_LT(set.base, core::kFirstRow + 3 * core::kReservedIds);
}

TEST(Faults, ADeadRankIsNamedEverywhere) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.seed = seed;
    options.ranks = 6;
    options.fanout = 1;
    const int victim = static_cast<int>(1 + seed % 5);  // sometimes a node's leader
    // The nodes below a dead leader hear nothing through the tree any more: their leaders notice the broken link, which
    // is the engine's business. So only victims that nobody is below.
    if (victim == 2) continue;
    World world(options, allreduces(21));
    set_training(world, 6, Training{20, 6, 0, true, true}, seed);
    Program program = training_program(Training{20, 3, 0, true, true}, seed);
    program.back() = die();
    world.set_program(victim, program);
    if (victim == 4) world.set_program(5, program);  // its node peer goes with it
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.fault(0).code(), ErrorCode::rank_lost);
    EXPECT_NE(world.fault(0).message().find(" was lost: its process ended."), std::string::npos);
    EXPECT_TRUE(std::holds_alternative<control::Faulted>(world.log().back()));
  }
}

TEST(Faults, AStallIsReportedOnceAndFailsAtTheDeadline) {
  World world({.stall_warning = 1000, .deadline = 4000}, allreduces(2));
  for (int rank = 0; rank < 4; ++rank) {
    Program program{submit("a", 0), wait_all()};
    if (rank != 1 && rank != 3) program.push_back(submit("b", 1));
    program.push_back(rank == 1 ? pause(20000) : wait_all());
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(world.stalls(rank).size(), 1U);
    EXPECT_EQ(world.stalls(rank)[0].request.name, "b");
    EXPECT_EQ(world.stalls(rank)[0].missing, (std::vector<std::int32_t>{1, 3}));
    EXPECT_EQ(world.fault(rank).code(), ErrorCode::timeout);
    EXPECT_EQ(world.fault(rank).message(), "tensor \"b\" has not completed within 4 s: ranks 1 and 3 have not "
                                           "submitted it. The contents of the buffers in flight are undefined.");
  }
}

constexpr const char* kRankOneIsStopped =
    "tensor \"b\" has not completed within 4 s: rank 1 does not answer; its process is stopped, or kept from running. "
    "The contents of the buffers in flight are undefined.";

TEST(Faults, ARankThatIsStoppedBeforeItSubmitsIsNamed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed, .deadline = 4000}, allreduces(2));
    for (int rank = 0; rank < 4; ++rank) {
      world.set_program(rank, rank == 1 ? Program{stop()} : Program{submit("b", 1), wait_all()});
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.fault(2).message(), kRankOneIsStopped);
    EXPECT_EQ(world.fault(2).code(), ErrorCode::timeout);
    EXPECT_GE(world.now(), 9000U);  // it was waited for
  }
}

TEST(Faults, ARankThatIsStoppedAmidABatchIsNamed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed, .deadline = 4000}, allreduces(2));
    for (int rank = 0; rank < 4; ++rank) {
      Program program{submit("b", 1)};
      program.push_back(rank == 1 ? stop() : wait_all());
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.fault(2).message(), kRankOneIsStopped);
  }
}

/// Rank 2 asks for a pair, which is made just before its deadline; it learns of that just behind it. By then it waits
/// for the next pair of the same name, for which rank 0 comes later: nobody has waited too long for that.
TEST(Questions, AreNotAnsweredForTheNextRequestOfTheSameName) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    World world({.seed = seed, .link_delay = 400, .deadline = 1000}, allreduces(1));
    world.set_program(0, {pause(800), make_set(1, {0, 2}), drop_set(1), pause(200), make_set(1, {0, 2}), leave()});
    world.set_program(1, {leave()});
    world.set_program(2, {make_set(1, {0, 2}), drop_set(1), make_set(1, {0, 2}), leave()});
    world.set_program(3, {leave()});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    ASSERT_TRUE(world.fault(0).ok()) << "seed " << seed << ": " << world.fault(0).message();
  }
}

/// Rank 1 leaves. Rank 2, whose operation fails because of that, ends; rank 3, whose operation with rank 2 fails
/// because of that, does, too. Whatever fails of it, and the end of the job, is because of rank 1.
TEST(FirstCauses, AreNamedByEverySurvivor) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    World world({.ranks = 6, .seed = seed}, allreduces(2));
    const Program waits{submit("late"), wait_all()};
    for (const int rank : {0, 4, 5}) world.set_program(rank, waits);
    world.set_program(1, {leave()});
    world.set_program(2, {make_set(1, {2, 3}), submit("x"), wait("x"), leave()});
    world.set_program(3, {make_set(1, {2, 3}), submit("pair", 1, 1), wait_all(), die()});
    // Nobody else has submitted "x", nor needs rank 3 but by what never comes.
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    ASSERT_EQ(world.failures(3).size(), 1U) << "seed " << seed;
    EXPECT_EQ(world.failures(3)[0].message(), "rank 1 has shut down; no later operation can complete.");
    for (const int rank : {0, 4, 5}) {
      EXPECT_EQ(world.fault(rank).message(),
                "rank 1 has left the job, and because of that rank 3 was lost: its process "
                "ended. The contents of the buffers in flight are undefined.")
          << "seed " << seed;
    }
    EXPECT_EQ(std::get<control::Faulted>(world.log().back()).rank, 1);
  }
}

/// Two ranks wait for each other: the error names both waits, whichever is reported.
TEST(Faults, RanksThatWaitForEachOtherAreBothNamed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed, .deadline = 4000}, allreduces(2));
    world.set_program(0, {submit("b", 1), wait_all()});
    world.set_program(1, {submit("c", 1), wait_all()});
    world.set_program(2, {submit("b", 1), wait_all()});
    world.set_program(3, {submit("b", 1), submit("c", 1), wait_all()});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    const std::string b = "rank 1 has not submitted it; rank 1 waits for tensor \"c\".";
    const std::string c = "ranks 0 and 2 have not submitted it; ranks 0 and 2 wait for tensor \"b\".";
    const std::string said = world.fault(3).message();
    const std::string reason = said.substr(said.find(": ") + 2);
    const std::string undefined = " The contents of the buffers in flight are undefined.";
    EXPECT_TRUE(reason == b + undefined || reason == c + undefined) << said;
  }
}

TEST(Leaving, FailsSoonWhatARankThatLeftWouldHaveToSubmit) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    World world({.seed = seed}, allreduces(4));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == 2) {
        // Its own submission of b is made, and counts although it has left.
        world.set_program(rank, {submit("a", 0), wait_all(), submit("b", 1), leave()});
        continue;
      }
      Program program{submit("a", 0), wait_all()};
      if (rank == 0) program.push_back(submit("c", 2));
      if (rank == 1) program.push_back(pause(1000));
      add(program, {submit("b", 1), submit("c", 2), wait_all(), submit("a", 0), wait_all(), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (const int rank : {0, 1, 3}) {
      for (const Status& failure : world.failures(rank)) EXPECT_EQ(failure.code(), ErrorCode::rank_lost);
    }
    // Rank 0 may have submitted c twice: once before and once after the first was failed.
    ASSERT_GE(world.failures(0).size(), 2U) << "seed " << seed;
    ASSERT_EQ(world.failures(1).size(), 2U) << "seed " << seed;
    EXPECT_EQ(world.failures(1)[0].message(), "rank 2 has shut down and will not submit tensor \"c\".");
    EXPECT_EQ(world.failures(1)[1].message(), "rank 2 has shut down and will not submit tensor \"a\".");
    EXPECT_TRUE(std::holds_alternative<control::Closed>(world.log().back()));
  }
}

/// Ranks 2 and 3 are a node. When rank 2 goes, rank 3 can be heard no more: what needs it fails, and the log closes
/// without it.
TEST(Leaving, OfALeaderCutsOffItsNode) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    World world({.ranks = 6, .ranks_per_node = 2, .seed = seed}, allreduces(1));
    world.set_program(2, {submit("a"), wait_all(), leave(), go()});
    world.set_program(3, {submit("a"), wait_all(), make_set(1, {3, 4}), pause(100000), submit("x", 0, 1), leave()});
    world.set_program(4, {submit("a"), wait_all(), make_set(1, {3, 4}), submit("x", 0, 1), wait_all(), leave()});
    for (const int rank : {0, 1, 5}) {
      world.set_program(rank,
                        {submit("a"), wait_all(), make_set(2, {0, 1, 5}), submit("y", 0, 2), wait_all(), leave()});
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (const int rank : {0, 1, 5}) EXPECT_TRUE(world.failures(rank).empty()) << "seed " << seed;
    ASSERT_EQ(world.failures(4).size(), 1U) << "seed " << seed;
    EXPECT_EQ(world.failures(4).front().code(), ErrorCode::rank_lost);
    EXPECT_EQ(world.failures(4).front().message().find("rank 2 has shut down"), 0U)
        << world.failures(4).front().message();
    EXPECT_TRUE(std::holds_alternative<control::Closed>(world.log().back()));
    for (const auto& left : entries_of<control::RankDeparted>(world)) {
      EXPECT_EQ(left.because, left.rank == 3 || left.rank == 4 ? 2 : -1);
    }
  }
}

TEST(LargeWorlds, Of1024RanksIn128NodesKeepEveryPromise) {
  World world({.ranks = 1024, .ranks_per_node = 8, .fusion_threshold = 600}, allreduces(16));
  set_training(world, 1024, Training{15, 5, 2, true, true}, 11);
  ASSERT_EQ(world.topology().node_count(), 128);
  ASSERT_EQ(world.run(), "");
  EXPECT_EQ(declarations(world, 1024), 16U * 1024U);
  EXPECT_EQ(entries_of<control::PlanDefined>(world).size(), 1U);
}

TEST(LargeWorlds, WithOverlappingSetsKeepEveryPromise) {
  Options options;
  options.ranks = 128;
  options.ranks_per_node = 5;
  options.fanout = 3;
  options.capacity = 60;
  World world(options, allreduces(RandomPrograms::kSignatures));
  Random shape;
  shape.sets = 4;
  shape.phases = 8;
  RandomPrograms programs(shape, options.ranks, 5);
  for (int rank = 0; rank < options.ranks; ++rank) {
    world.set_program(rank, programs.programs()[static_cast<std::size_t>(rank)]);
  }
  ASSERT_EQ(world.run(), "");
}

/// Nobody waits for the last submissions, counts of names that all know: some complete a planned batch, some do not.
TEST(Leaving, LosesNothingThatAllSubmittedBefore) {
  Program program;
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"a", "b", "c"}) program.push_back(submit(name));
    add(program, {wait_all(), end_step()});
  }
  add(program, {submit("a"), submit("c"), leave()});
  for (const int ranks : {1, 2, 5}) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      World world({.ranks = ranks, .seed = seed}, allreduces(1));
      for (int rank = 0; rank < ranks; ++rank) world.set_program(rank, program);
      ASSERT_EQ(world.run(), "") << ranks << " ranks, seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kolo::simulator
