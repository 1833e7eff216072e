// SPDX-License-Identifier: Apache-2.0
//
// What is promised of calls without a name, one world a promise.
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

/// A step of many calls costs what its messages cost: nothing is counted, declared, given a number, or planned.
TEST(Sequences, CostAFewBytesHoweverManyCallsThereAre) {
  for (const int calls : {10, 1000}) {
    World world({.ranks = 4, .open_batches = 1}, allreduces(2));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      for (int step = 0; step < 5; ++step) {
        for (int i = 0; i < calls; ++i) program.push_back(launch());
        add(program, {wait_launched(), end_step()});
      }
      program.push_back(leave());
      world.set_program(rank, std::move(program));
    }
    ASSERT_EQ(world.run(), "");
    EXPECT_EQ(world.traffic().declarations, 0U);
    EXPECT_EQ(world.counters(0).called, static_cast<std::uint64_t>(5 * calls));
    EXPECT_TRUE(entries_of<control::Assigned>(world).empty());
    EXPECT_TRUE(entries_of<control::PlanDefined>(world).empty());
    EXPECT_LE(world.traffic().entry_bytes, 6 * world.traffic().entries);
    EXPECT_GE(entries_of<control::SequenceAppended>(world).size(), 5U);
  }
}

/// Ranks differ about the third of five calls: that one fails on all of them, at once.
TEST(Sequences, FailWhereRanksDifferAndGoOn) {
  for (const int per_node : {1, 2, 4}) {
    World world({.ranks_per_node = per_node}, allreduces(8));
    for (int rank = 0; rank < 4; ++rank) {
      world.set_program(rank, {launch(1), launch(2), launch(rank == 2 ? 5 : 3), launch(4), launch(1), wait_launched(),
                               launch(2), wait_all(), leave()});
    }
    ASSERT_EQ(world.run(), "");
    for (int rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(world.failures(rank).size(), 1U);
      EXPECT_EQ(world.failures(rank)[0].code(), ErrorCode::mismatch);
      EXPECT_EQ(world.failures(rank)[0].message(),
                "unnamed call number 3 of allreduce: ranks disagree about shape: [19] on ranks 0, 1 and 3; "
                "[21] on rank 2. The operation did not run; submit the same on every rank.");
    }
  }
}

/// A rank leaves after two calls: the others' third fails, also where it is made later.
TEST(Sequences, EndWhereARankHasLeft) {
  World world(Options{}, allreduces(2));
  for (int rank = 0; rank < 4; ++rank) {
    Program program{launch(), launch()};
    if (rank != 1) program.push_back(launch());
    if (rank == 3) program.insert(program.begin(), pause(2000));
    add(program, {wait_all(), leave()});
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  for (const int rank : {0, 2, 3}) {
    ASSERT_EQ(world.failures(rank).size(), 1U);
    EXPECT_EQ(world.failures(rank)[0].code(), ErrorCode::rank_lost);
    EXPECT_EQ(world.failures(rank)[0].message(), "rank 1 has shut down and will not submit unnamed call number 3.");
  }
  EXPECT_TRUE(world.failures(1).empty());
}

TEST(Sequences, OfASetOfSomeRanksDoNotWaitForTheWorlds) {
  World world(Options{}, allreduces(4));
  for (int rank = 0; rank < 4; ++rank) {
    Program program{launch(0)};
    if (rank >= 2) {
      program = {make_set(1, {3, 2}), launch(1, 1), launch(2, 1), wait_launched(1), launch(0), drop_set(1)};
    } else {
      program.push_back(pause(1000));
    }
    add(program, {wait_all(), leave()});
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(world.failures(rank).empty());
}

/// The warning and the error name who has not made the call, and what it waits for instead.
TEST(Sequences, NameWhoHasNotMadeTheCall) {
  World world({.stall_warning = 500, .deadline = 3000}, allreduces(2));
  for (int rank = 0; rank < 4; ++rank) {
    Program program{launch(), launch(), wait_launched(), leave()};
    if (rank == 3) program = {launch(), submit("else"), wait("else"), leave()};
    world.set_program(rank, program);
  }
  ASSERT_EQ(world.run(), "");
  ASSERT_FALSE(world.stalls(0).empty());
  EXPECT_EQ(world.stalls(0)[0].request.name, control::kSequence);
  EXPECT_EQ(world.stalls(0)[0].missing, (std::vector<std::int32_t>{3}));
  const std::string sentence = world.fault(0).message();
  EXPECT_EQ(sentence.rfind("unnamed call number 2 has not completed within ", 0), 0U) << sentence;
  EXPECT_NE(sentence.find(": rank 3 has not submitted it; rank 3 waits for tensor \"else\"."), std::string::npos)
      << sentence;
}

/// Who joins contributes to what it has made; the others go on, and all come back to one number.
TEST(Sequences, GoOnWithoutTheRanksThatHaveJoined) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    World world({.seed = seed}, allreduces(4));
    for (int rank = 0; rank < 4; ++rank) {
      Program program;
      for (int i = 0; i < 2 + 5 * rank; ++i) program.push_back(launch(i % 3));
      add(program, {join(), launch(3), wait_all(), leave()});
      world.set_program(rank, program);
    }
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(world.failures(rank).empty()) << "seed " << seed;
  }
}

// ---------------------------------------------------------------- bugs between the machines

std::string run_with(const Sabotage& sabotage) {
  World world(Options{}, allreduces(4), sabotage);
  for (int rank = 0; rank < 4; ++rank) {
    Program program{launch(1), launch(2), launch(2), wait_launched(), launch(1)};
    if (rank == 3) program.insert(program.begin() + 1, pause(2000));
    add(program, {wait_all(), leave()});
    world.set_program(rank, program);
  }
  return world.run();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CheckerOfSequences, SeesCallsThatARankHasNotMade) {
  ASSERT_EQ(run_with({}), "");
  Sabotage sabotage;
  sabotage.message = [](int rank, control::UpMessage& message) {
    auto* grown = std::get_if<control::SequenceGrown>(&message);
    if (rank == 3 && grown != nullptr && grown->first == 1) grown->repeats.back().count = 9;
    return true;
  };
  const std::string seen = run_with(sabotage);
  EXPECT_TRUE(contains(seen, "has not made") || contains(seen, "disagree")) << seen;
}

TEST(CheckerOfSequences, SeesABatchOfAnotherLength) {
  Sabotage sabotage;
  sabotage.rank_reads = [](int rank, control::LogEntry& entry) {
    auto* appended = std::get_if<control::SequenceAppended>(&entry);
    if (rank == 2 && appended != nullptr && appended->calls > 1) --appended->calls;
    return true;
  };
  EXPECT_TRUE(contains(run_with(sabotage), "runs other calls than entry"));
}

TEST(CheckerOfSequences, SeesABatchThatIsLost) {
  bool is_lost = false;
  Sabotage sabotage;
  sabotage.decided = [&is_lost](std::vector<control::LogEntry>& entries) {
    for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
      if (is_lost || !std::holds_alternative<control::SequenceAppended>(*entry)) continue;
      is_lost = true;
      entries.erase(entry);
      return;
    }
  };
  const std::string seen = run_with(sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(CheckerOfSequences, SeesAMismatchThatIsNone) {
  Sabotage sabotage;
  sabotage.decided = [](std::vector<control::LogEntry>& entries) {
    for (control::LogEntry& entry : entries) {
      const auto* appended = std::get_if<control::SequenceAppended>(&entry);
      if (appended == nullptr || appended->calls > 1) continue;
      entry = control::SequenceFailed{0, 1, ErrorCode::mismatch, "no"};
      return;
    }
  };
  EXPECT_TRUE(contains(run_with(sabotage), "on which ranks agree"));
}

}  // namespace
}  // namespace kolo::simulator
