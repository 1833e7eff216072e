// SPDX-License-Identifier: Apache-2.0
//
// Is the checker awake? Each test plants one bug of the protocol between the machines, and the checker must name it.
// The same worlds without the bug are clean, which each test shows first.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulator/programs.hpp"
#include "tests/simulator/world.hpp"

namespace kolo::simulator {
namespace {

using Programs = std::vector<Program>;

std::string run(const Options& options, const Programs& programs, const Sabotage& sabotage = {}) {
  auto signatures = allreduces(32);
  World world(options, signatures, sabotage);
  for (int rank = 0; rank < options.ranks; ++rank) world.set_program(rank, programs[static_cast<std::size_t>(rank)]);
  return world.run();
}

Programs training(int ranks, int steps = 6) {
  Programs programs;
  for (int rank = 0; rank < ranks; ++rank) {
    programs.push_back(training_program(Training{20, steps, 2, true, true}, static_cast<std::uint64_t>(rank)));
  }
  return programs;
}

/// More names than ids: every step evicts and assigns.
Options crowded() {
  Options options;
  options.capacity = 12;
  return options;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Checker, SeesARelayThatForwardsBeforeAllChildrenHaveSpoken) {
  Programs programs = training(4);
  Program& late = programs[1];
  for (std::size_t i = 20; i < late.size(); i += 20) {
    late.insert(late.begin() + static_cast<std::ptrdiff_t>(i), pause(2000));
  }
  ASSERT_EQ(run(Options{}, programs), "");
  World* there = nullptr;
  Sabotage sabotage;
  // Whatever rank 0 has counted, its leader believes of rank 1 too.
  sabotage.count = [&there](int rank, TensorId id, control::CountWord& word) {
    if (rank == 0 && id >= core::kReservedIds) there->relay(0).on_count(1, id, word);
    return true;
  };
  World world(Options{}, allreduces(32), sabotage);
  there = &world;
  for (int rank = 0; rank < 4; ++rank) world.set_program(rank, programs[static_cast<std::size_t>(rank)]);
  const std::string seen = world.run();
  EXPECT_TRUE(contains(seen, "has not made")) << seen;
}

TEST(Checker, SeesADeclarationCountedForSomebodyElse) {
  Programs programs = training(4);
  programs[3].insert(programs[3].begin(), pause(2000));
  ASSERT_EQ(run(Options{}, programs), "");
  World* there = nullptr;
  Sabotage sabotage;
  sabotage.message = [&there](int rank, control::UpMessage& message) {
    if (rank != 2 || !std::holds_alternative<control::Declared>(message)) return true;
    control::UpMessage forged = message;
    for (auto& variant : std::get<control::Declared>(forged).variants) variant.ranks = {3};
    there->relay(1).on_message(1, forged);
    return true;
  };
  World world(Options{}, allreduces(32), sabotage);
  there = &world;
  for (int rank = 0; rank < 4; ++rank) world.set_program(rank, programs[static_cast<std::size_t>(rank)]);
  const std::string seen = world.run();
  EXPECT_TRUE(contains(seen, "has not made")) << seen;
}

TEST(Checker, SeesARankThatDoesNotSendAgainAfterAnEviction) {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) {
    Program program;
    for (int step = 0; step < 10; ++step) {
      // Rank 0 is always ahead, so that its submissions are in flight when their ids are given away.
      for (int i = 0; i < 20; ++i) {
        program.push_back(submit("grad" + std::to_string(i), i));
        if (rank != 0) program.push_back(pause(50));
      }
      program.push_back(wait_all());
    }
    program.push_back(leave());
    programs.push_back(program);
  }
  ASSERT_EQ(run(crowded(), programs), "");
  auto declared = std::make_shared<int>(0);
  Sabotage sabotage;
  sabotage.message = [declared](int rank, control::UpMessage& message) {
    const auto* d = std::get_if<control::Declared>(&message);
    if (rank != 0 || d == nullptr || d->id != core::kNoTensor || d->round != 1) return true;
    return ++*declared <= 20;  // the first step's; the later ones are what was sent again
  };
  const std::string seen = run(crowded(), programs, sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

Programs skewed() {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) {
    Program program;
    for (int step = 0; step < 6; ++step) {
      for (int i = 0; i < 10; ++i) {
        program.push_back(submit("grad" + std::to_string(i), i));
        if (i == 4) program.push_back(wait_all());
      }
      program.push_back(wait_all());
      program.push_back(end_step());
    }
    program.push_back(leave());
    programs.push_back(program);
  }
  return programs;
}

/// Each has data for another number of steps, and half of a step in flight when it joins.
Programs joining() {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) {
    Program program;
    for (int step = 0; step < 2 + rank; ++step) {
      for (int i = 0; i < 6; ++i) program.push_back(submit("grad" + std::to_string(i), i));
      program.push_back(wait_all());
    }
    for (int i = 0; i < 3; ++i) program.push_back(submit("grad" + std::to_string(i), i));
    program.push_back(join());
    program.push_back(submit("after", 6));
    program.push_back(wait_all());
    program.push_back(leave());
    programs.push_back(program);
  }
  return programs;
}

TEST(Checker, SeesAJoinThatIsNotPassedOn) {
  ASSERT_EQ(run(Options{}, joining()), "");
  Sabotage sabotage;
  sabotage.message = [](int rank, control::UpMessage& message) {
    return rank != 2 || !std::holds_alternative<control::Joined>(message);
  };
  const std::string seen = run(Options{}, joining(), sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(Checker, SeesAJoinThatForgetsASubmission) {
  Sabotage sabotage;
  sabotage.decided = [](std::vector<control::LogEntry>& entries) {
    for (control::LogEntry& entry : entries) {
      auto* joined = std::get_if<control::RankJoined>(&entry);
      if (joined != nullptr && !joined->submissions.empty()) joined->submissions.pop_back();
    }
  };
  const std::string seen = run(Options{}, joining(), sabotage);
  EXPECT_TRUE(contains(seen, "with other submissions than it has made")) << seen;
}

TEST(Checker, SeesARankThatCountsOtherContributors) {
  Sabotage sabotage;
  sabotage.rank_reads = [](int rank, control::LogEntry& entry) {
    auto* joined = std::get_if<control::RankJoined>(&entry);
    if (rank == 3 && joined != nullptr && joined->rank == 0) joined->submissions.clear();
    return true;
  };
  const std::string seen = run(Options{}, joining(), sabotage);
  EXPECT_TRUE(contains(seen, "with other contributors")) << seen;
}

TEST(Checker, SeesAJoinThatEndsWithAnotherRank) {
  Sabotage sabotage;
  sabotage.decided = [](std::vector<control::LogEntry>& entries) {
    for (control::LogEntry& entry : entries) {
      if (auto* ended = std::get_if<control::JoinEnded>(&entry)) ended->last = (ended->last + 1) % 4;
    }
  };
  const std::string seen = run(Options{}, joining(), sabotage);
  EXPECT_TRUE(contains(seen, "with another last rank")) << seen;
}

TEST(Checker, SeesASequencerThatIsDeafToPartsAwaited) {
  ASSERT_EQ(run(Options{}, skewed()), "");
  Sabotage sabotage;
  sabotage.relayed = [](int node, control::UpMessage& message) {
    return node != 0 || !std::holds_alternative<control::PartAwaited>(message);
  };
  const std::string seen = run(Options{}, skewed(), sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

/// Names in another order on every rank and fewer ids than names: counts are on their way when their ids are given
/// away.
Programs crossing() {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) {
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    std::vector<int> names{0, 1, 2, 3, 4, 5};
    Program program;
    for (int step = 0; step < 60; ++step) {
      std::shuffle(names.begin(), names.end(), random);
      for (const int i : names) {
        program.push_back(submit("grad" + std::to_string(i), i));
        if (random() % 8 == 0) program.push_back(pause(random() % 100));
      }
    }
    program.push_back(wait_all());
    program.push_back(leave());
    programs.push_back(program);
  }
  return programs;
}

TEST(Checker, SeesCountsThatPassForTheCurrentGeneration) {
  const Programs programs = crossing();
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.capacity = core::kReservedIds + 5;
    options.seed = seed;
    ASSERT_EQ(run(options, programs), "");
    auto generation = std::make_shared<std::map<TensorId, std::uint16_t>>();
    Sabotage sabotage;
    sabotage.decided = [generation](std::vector<control::LogEntry>& entries) {
      for (const control::LogEntry& entry : entries) {
        const auto* assigned = std::get_if<control::Assigned>(&entry);
        if (assigned != nullptr) (*generation)[assigned->id] = assigned->generation;
      }
    };
    sabotage.count = [generation](int, TensorId id, control::CountWord& word) {
      if (id >= core::kReservedIds && word.count > 0) word.generation = (*generation)[id];
      return true;
    };
    if (!run(options, programs, sabotage).empty()) ++caught;
  }
  EXPECT_GT(caught, 0);
}

TEST(Checker, SeesAPlannedBatchThatIsAppendedTwice) {
  auto done = std::make_shared<bool>(false);
  Sabotage sabotage;
  sabotage.decided = [done](std::vector<control::LogEntry>& entries) {
    for (std::size_t i = 0; i < entries.size() && !*done; ++i) {
      if (!std::holds_alternative<control::PlannedBatch>(entries[i])) continue;
      *done = true;
      entries.push_back(control::LogEntry(entries[i]));
    }
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "has not made")) << seen;
}

TEST(Checker, SeesABatchWithoutOneOfItsMembers) {
  auto done = std::make_shared<bool>(false);
  Sabotage sabotage;
  sabotage.decided = [done](std::vector<control::LogEntry>& entries) {
    for (control::LogEntry& entry : entries) {
      auto* batch = std::get_if<control::BatchAppended>(&entry);
      if (batch == nullptr || batch->members.size() < 2 || *done) continue;
      *done = true;
      batch->members.pop_back();
    }
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(Checker, SeesANodeThatReadsABatchInAnotherOrder) {
  Sabotage sabotage;
  sabotage.node_reads = [](int node, control::LogEntry& entry) {
    auto* batch = std::get_if<control::BatchAppended>(&entry);
    if (node == 1 && batch != nullptr) std::reverse(batch->members.begin(), batch->members.end());
    return true;
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "node 1 reads another log")) << seen;
}

TEST(Checker, SeesANodeThatMissesAnEntry) {
  auto read = std::make_shared<int>(0);
  Sabotage sabotage;
  sabotage.node_reads = [read](int node, control::LogEntry&) { return node != 1 || ++*read != 30; };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "node 1 reads another log")) << seen;
}

TEST(Checker, SeesARankThatRunsABatchInAnotherOrder) {
  Sabotage sabotage;
  sabotage.rank_reads = [](int rank, control::LogEntry& entry) {
    auto* batch = std::get_if<control::BatchAppended>(&entry);
    if (rank == 3 && batch != nullptr) std::reverse(batch->members.begin(), batch->members.end());
    return true;
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "rank 3 runs submission")) << seen;
}

TEST(Checker, SeesARankThatMissesABatch) {
  auto lost = std::make_shared<bool>(false);
  Sabotage sabotage;
  sabotage.rank_reads = [lost](int rank, control::LogEntry& entry) {
    return rank != 2 || !std::holds_alternative<control::BatchAppended>(entry) || std::exchange(*lost, true);
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(Checker, SeesCompletionsThatGetLost) {
  Sabotage sabotage;
  sabotage.count = [](int rank, TensorId id, control::CountWord&) { return rank != 1 || id != core::kCompleted; };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(Checker, SeesALostCount) {
  auto counts = std::make_shared<int>(0);
  Sabotage sabotage;
  sabotage.count = [counts](int rank, TensorId id, control::CountWord&) {
    return rank != 1 || id < core::kReservedIds || ++*counts != 25;
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(Checker, SeesADisagreementThatIsHushedUp) {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) programs.push_back({submit("x", rank == 3 ? 1 : 0), wait_all(), leave()});
  ASSERT_EQ(run(Options{}, programs), "");
  Sabotage sabotage;
  sabotage.message = [](int rank, control::UpMessage& message) {
    auto* declared = std::get_if<control::Declared>(&message);
    if (rank == 3 && declared != nullptr) declared->variants[0].signature = allreduces(1)[0];
    return true;
  };
  const std::string seen = run(Options{}, programs, sabotage);
  EXPECT_TRUE(contains(seen, "on which ranks disagree")) << seen;
}

TEST(Checker, SeesAFailureOfWhatAllAgreedOn) {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) programs.push_back({submit("x", 0), wait_all(), leave()});
  Sabotage sabotage;
  sabotage.message = [](int rank, control::UpMessage& message) {
    auto* declared = std::get_if<control::Declared>(&message);
    if (rank == 3 && declared != nullptr) declared->variants[0].signature = allreduces(2)[1];
    return true;
  };
  const std::string seen = run(Options{}, programs, sabotage);
  EXPECT_TRUE(contains(seen, "on which ranks agree")) << seen;
}

TEST(Checker, SeesARankThatNeverHearsOfItsFailure) {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) programs.push_back({submit("x", rank == 3 ? 1 : 0), wait_all(), leave()});
  Sabotage sabotage;
  sabotage.rank_reads = [](int rank, control::LogEntry& entry) {
    return rank != 1 || !std::holds_alternative<control::Failed>(entry);
  };
  const std::string seen = run(Options{}, programs, sabotage);
  EXPECT_TRUE(contains(seen, "rank 1 waits for ever")) << seen;
}

TEST(Checker, SeesADeathThatNobodyReports) {
  Programs programs = training(4);
  programs[3] = {submit("grad0", 0), die()};
  ASSERT_EQ(run(Options{}, programs), "");
  Sabotage sabotage;
  sabotage.relayed = [](int, control::UpMessage& message) {
    return !std::holds_alternative<control::RankLost>(message);
  };
  const std::string seen = run(Options{}, programs, sabotage);
  EXPECT_TRUE(contains(seen, "waits for ever")) << seen;
}

TEST(Checker, SeesEntriesAfterTheEnd) {
  Sabotage sabotage;
  sabotage.decided = [](std::vector<control::LogEntry>& entries) {
    if (!entries.empty() && std::holds_alternative<control::Closed>(entries.back())) {
      entries.emplace_back(control::RankDeparted{0});
    }
  };
  const std::string seen = run(Options{}, training(4), sabotage);
  EXPECT_TRUE(contains(seen, "follows the end of the log")) << seen;
}

}  // namespace
}  // namespace kolo::simulator
