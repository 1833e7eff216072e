// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are out of data join; the others go on (control/messages.hpp, "Joining"). The checker knows who has really
// submitted what; see world.hpp.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulator/programs.hpp"
#include "tests/simulator/world.hpp"

namespace kolo::simulator {
namespace {

using Ranks = std::vector<std::int32_t>;
constexpr std::uint64_t kSeeds = 40;

Options seeded(std::uint64_t seed) {
  Options options;
  options.seed = seed;
  options.ranks_per_node = static_cast<int>(1 + seed % 4);
  options.open_batches = 1 + seed % 4;
  return options;
}

void add_steps(Program& program, int steps, int tensors, int set = 0) {
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < tensors; ++i) program.push_back(submit("grad" + std::to_string(i), i, set));
    for (int i = 0; i < tensors; ++i) program.push_back(wait("grad" + std::to_string(i), set));
    program.push_back(end_step(set));
  }
}

/// Each rank has data for one step more than the rank before it, and then for as many as the others again.
TEST(Join, OneByOneAndAllReturnTogether) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(6));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      for (int epoch = 0; epoch < 2; ++epoch) {
        add_steps(program, 3 + rank, 6);
        program.push_back(join());
      }
      add_steps(program, 5, 6);
      program.push_back(leave());
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(world.joins(rank), (Ranks{3, 3})) << "seed " << seed;
      EXPECT_TRUE(world.failures(rank).empty());
    }
    EXPECT_EQ(entries_of<control::RankJoined>(world).size(), 8U);
    bool was_alone = false;
    for (const Ranks& absent : world.absent_by_batch()) was_alone = was_alone || absent == Ranks{0, 1, 2};
    EXPECT_TRUE(was_alone) << "nobody but rank 3 has data for its last step";
    // Steps are the same for all again, so that a plan is found for them.
    EXPECT_GT(world.counters(0).planned_batches, 0U);
    const auto plans = entries_of<control::PlanDefined>(world);
    EXPECT_GE(plans.size(), 3U);
  }
}

TEST(Join, InASetConcernsThatSetAlone) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(3));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      if (rank < 3) {
        program.push_back(make_set(1, {2, 0, 1}));
        // What is in flight in the world is not concerned.
        program.push_back(submit("x", 2));
        add_steps(program, rank == 1 ? 1 : 3, 2, 1);
        add(program, {join(1), drop_set(1)});
      } else {
        program = {pause(3000), submit("x", 2)};
      }
      add(program, {wait_all(), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.joins(0).size(), 1U);
    EXPECT_EQ(world.joins(0), world.joins(2));
    EXPECT_NE(world.joins(1), Ranks{1});
    EXPECT_TRUE(world.joins(3).empty());
    EXPECT_EQ(entries_of<control::SetRemoved>(world).size(), 1U);
  }
}

/// A rank has submitted half of a planned batch when it joins: it contributes to that half.
TEST(Join, CutsAPlanInTheMiddleOfABatch) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(10));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      add_steps(program, 5, 10);
      if (rank == 1) {
        for (int i = 0; i < 5; ++i) program.push_back(submit("grad" + std::to_string(i), i));
      } else {
        program.push_back(pause(500));
        add_steps(program, 2, 10);
      }
      add(program, {join(), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    const auto ended = entries_of<control::PlanVoided>(world);
    EXPECT_TRUE(
        std::any_of(ended.begin(), ended.end(), [](const auto& e) { return e.why == control::PlanEnd::joined; }));
    const auto joined = entries_of<control::RankJoined>(world);
    EXPECT_EQ(joined[0].rank, 1);
    EXPECT_EQ(joined[0].submissions, (std::vector<std::string>{"grad0", "grad1", "grad2", "grad3", "grad4"}));
    EXPECT_EQ(world.absent_by_batch().back(), Ranks{1});
    EXPECT_GT(world.counters(1).planned_batches, 0U);
  }
}

/// Calls avoid the log until somebody joins, so a rank that was absent cannot count them along.
TEST(Join, BringsRanksBackToTheSameUnnamedCall) {
  std::uint64_t passed = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(3));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (int i = 0; i < 3 + rank * epoch; ++i) {
          program.push_back(call(i % 3));
          if (i % 2 == 0) program.push_back(submit("named", 0));
        }
        program.push_back(join());
      }
      add(program, {call(1), wait_all(), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(world.joins(rank).size(), 3U);
      EXPECT_TRUE(world.failures(rank).empty());
    }
    passed += world.passed();
  }
  EXPECT_GT(passed, 3 * kSeeds);
}

/// Nobody is left to submit what only one of them has.
TEST(Join, RunsWhatEachHadInFlight) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(4));
    for (int rank = 0; rank < 4; ++rank) {
      world.set_program(rank, {submit("all", 1), submit("mine" + std::to_string(rank), 0),
                               submit(rank < 2 ? "low" : "high", 2), launch(3), join(), wait_all(), submit("all", 1),
                               launch(3), wait_all(), leave()});
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    int alone = 0;
    int by_two = 0;
    for (const Ranks& absent : world.absent_by_batch()) {
      alone += absent.size() == 3 ? 1 : 0;
      by_two += absent.size() == 2 ? 1 : 0;
    }
    EXPECT_EQ(alone, 4);
    EXPECT_EQ(by_two, 2);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(world.joins(rank), world.joins(0));
  }
}

TEST(Join, TellsWhatDiffersFromWhatAnAbsentRankSubmitted) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(4));
    world.set_program(0, {submit("x", 0), join(), submit("x", 2), wait_all(), leave()});
    for (int rank = 1; rank < 4; ++rank) {
      world.set_program(rank, {pause(500), submit("x", 1), wait("x"), submit("y", 3), wait("y"), join(), submit("x", 2),
                               wait_all(), leave()});
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(world.failures(rank).size(), 1U);
      EXPECT_EQ(world.failures(rank)[0].message(),
                "tensor \"x\" of allreduce: ranks disagree about shape: [16] on rank 0; [17] on ranks 1-3. The "
                "operation did not run; submit the same on every rank.");
    }
  }
}

TEST(Join, RefusesWhatNeedsAnAbsentRank) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    auto signatures = allreduces(4);
    signatures[3].op = ReduceOp::product;
    signatures[3].prescale = 0.5;
    signatures[0].kind = core::CollectiveKind::broadcast;
    signatures[0].root = 2;
    signatures[1].kind = core::CollectiveKind::broadcast;
    signatures[1].root = 1;
    signatures[2].kind = core::CollectiveKind::alltoall;
    World world(seeded(seed), signatures);
    world.set_program(2, {join(), submit("root 2", 0), submit("exchange", 2), wait_all(), leave()});
    for (const int rank : {0, 1, 3}) {
      world.set_program(rank, {pause(500), submit("root 2", 0), wait_all(), submit("root 1", 1), wait_all(),
                               submit("exchange", 2), wait_all(), submit("product", 3), wait_all(), join(),
                               submit("root 2", 0), submit("exchange", 2), wait_all(), leave()});
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (const int rank : {0, 1, 3}) {
      ASSERT_EQ(world.failures(rank).size(), 3U);
      EXPECT_EQ(world.failures(rank)[2].message(),
                "tensor \"product\": the allreduce cannot run, because rank 2 has joined, and nothing can stand for a "
                "rank in a product with prescale; scale the inputs before the call.");
      EXPECT_EQ(world.failures(rank)[0].code(), ErrorCode::invalid_argument);
      EXPECT_EQ(
          world.failures(rank)[0].message(),
          "tensor \"root 2\": the broadcast cannot run, because its root, rank 2, has joined; give a root that has not "
          "joined.");
      EXPECT_EQ(world.failures(rank)[1].message(),
                "tensor \"exchange\": the alltoall cannot run, because rank 2 has joined, and every rank would have to "
                "send and to receive; call it before any rank joins, or after the join.");
    }
    EXPECT_TRUE(world.failures(2).empty());
  }
}

/// The root of a set's broadcast is a place in the set's order.
TEST(Join, KnowsARootByItsPlaceInTheSet) {
  auto signatures = allreduces(2);
  for (int i = 0; i < 2; ++i) {
    signatures[static_cast<std::size_t>(i)].kind = core::CollectiveKind::broadcast;
    signatures[static_cast<std::size_t>(i)].root = i;
  }
  World world(Options{}, signatures);
  world.set_program(1, {make_set(1, {3, 1}), join(1), leave()});
  world.set_program(
      3, {make_set(1, {3, 1}), pause(500), submit("mine", 0, 1), submit("theirs", 1, 1), wait_all(), join(1), leave()});
  for (const int rank : {0, 2}) world.set_program(rank, {pause(3000), leave()});
  ASSERT_EQ(world.run(), "");
  ASSERT_EQ(world.failures(3).size(), 1U);
  EXPECT_EQ(world.failures(3)[0].message(),
            "tensor \"theirs\" of the group of ranks 1 and 3: the broadcast cannot run, because its "
            "root, rank 1, has joined; give a root that has not joined.");
}

TEST(Join, KeepsARankOutOfNewSets) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(1));
    world.set_program(0, {make_set(1, {0, 2}, "pair"), make_set(2, {0, 1}), join(), make_set(3, {0, 2}, "pair"),
                          submit("x", 0, 3), wait_all(), leave()});
    world.set_program(1, {make_set(2, {0, 1}), join(), leave()});
    world.set_program(2, {join(), make_set(3, {0, 2}, "pair"), submit("x", 0, 3), wait_all(), leave()});
    world.set_program(3, {pause(seed % 2 == 0 ? 0 : 500), join(), leave()});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    ASSERT_EQ(world.failures(0).size(), 1U);
    EXPECT_EQ(world.failures(0)[0].code(), ErrorCode::invalid_argument);
    EXPECT_EQ(world.failures(0)[0].message(),
              "group \"pair\" of ranks 0 and 2 cannot be made, because rank 2 has joined; make it before any rank "
              "joins, or after the join.");
    EXPECT_EQ(entries_of<control::SetAdded>(world).size(), 2U);
  }
}

TEST(Join, FailsWhenAMemberLeaves) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    World world(seeded(seed), allreduces(2));
    world.set_program(0, {join(), submit("x"), wait_all(), leave()});
    world.set_program(1, {submit("y", 1), join(), join(), wait_all(), leave()});
    world.set_program(2, {pause(seed * 20), leave()});
    world.set_program(3, {pause(100), submit("x"), wait_all(), join(), leave()});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    const std::string endless = "rank 2 has shut down, so the join cannot end.";
    ASSERT_GE(world.failures(0).size(), 1U);
    EXPECT_EQ(world.failures(0)[0].message(), endless);
    EXPECT_EQ(world.failures(0)[0].code(), ErrorCode::rank_lost);
    EXPECT_EQ(world.failures(3).back().message(), endless);
    EXPECT_TRUE(world.joins(0).empty());
  }
}

TEST(Join, EndsWithTheJobWhenARankDies) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool is_joined : {false, true}) {
      World world(seeded(seed), allreduces(3));
      for (int rank = 0; rank < 4; ++rank) {
        Program program;
        add_steps(program, 2 + rank, 3);
        if (rank == 3 && !is_joined) program.push_back(die());
        program.push_back(join());
        if (rank == 3) program.push_back(die());
        add(program, {submit("after", 0), wait_all(), leave()});
        world.set_program(rank, program);
      }
      ASSERT_EQ(world.run(), "") << "seed " << seed;
      EXPECT_EQ(world.fault(0).code(), ErrorCode::rank_lost);
    }
  }
}

TEST(Join, ThatAMemberNeverMakesEndsAtTheDeadline) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Options options = seeded(seed);
    options.stall_warning = 1000;
    options.deadline = 4000;
    World world(options, allreduces(2));
    world.set_program(0, {join()});
    world.set_program(1, {join()});
    world.set_program(2, {pause(300), join()});
    world.set_program(3, {pause(30000)});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(world.fault(rank).code(), ErrorCode::timeout);
      EXPECT_EQ(world.fault(rank).message(), "the join has not completed within 4 s: rank 3 has not joined. The "
                                             "contents of the buffers in flight are undefined.");
    }
    ASSERT_EQ(world.stalls(3).size(), 1U);
    EXPECT_TRUE(world.stalls(3)[0].request.join);
    EXPECT_EQ(world.stalls(3)[0].missing.back(), 3);
  }
}

/// The deadline counts from the last batch of the set, and a rank that is stopped is told by its silence.
TEST(Join, WaitsAsLongAsTheOthersWork) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool is_stopped : {false, true}) {
      Options options = seeded(seed);
      options.deadline = 4000;
      World world(options, allreduces(2));
      world.set_program(0, {join()});
      for (int rank = 1; rank < 4; ++rank) {
        Program program;
        for (int step = 0; step < 6; ++step) {
          add_steps(program, 1, 2);
          program.push_back(pause(3000));
        }
        if (rank == 3 && is_stopped) program.push_back(stop());
        program.push_back(join());
        world.set_program(rank, program);
      }
      ASSERT_EQ(world.run(), "") << "seed " << seed;
      if (is_stopped) {
        EXPECT_EQ(world.fault(1).message(), "the join has not completed within 4 s: rank 3 does not answer; its "
                                            "process is stopped, or kept from running. The contents of the buffers in "
                                            "flight are undefined.");
      } else {
        EXPECT_TRUE(world.fault(0).ok()) << world.fault(0).message();
        EXPECT_EQ(world.joins(0).size(), 1U);
      }
    }
  }
}

/// A rank that waits for what others must submit does not wait for those that have joined.
TEST(Join, LeavesTheBlameToThePresent) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Options options = seeded(seed);
    options.stall_warning = 1000;
    options.deadline = 4000;
    World world(options, allreduces(2));
    world.set_program(0, {pause(300), join()});
    world.set_program(1, {submit("x"), wait_all()});
    world.set_program(2, {pause(300), join()});
    world.set_program(3, {pause(30000)});
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    EXPECT_EQ(world.fault(1).message(), "tensor \"x\" has not completed within 4 s: rank 3 has not submitted it. The "
                                        "contents of the buffers in flight are undefined.");
    for (const control::Stalled& stall : world.stalls(1)) {
      EXPECT_TRUE(stall.request.join || stall.missing == Ranks{3});
    }
  }
}

}  // namespace
}  // namespace kolo::simulator
