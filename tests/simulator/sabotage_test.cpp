// SPDX-License-Identifier: Apache-2.0
//
// Is the checker awake? Bugs of the protocol are planted one by one between the machines, and the checker must name
// each. The same worlds without the bug are clean.
#include <algorithm>
#include <cstdint>
#include <map>
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
using control::LogEntry;
using control::UpMessage;

World* running = nullptr;  ///< for bugs that say something themselves

std::string run(const Options& options, const Programs& programs, const Sabotage& sabotage = {}) {
  World world(options, allreduces(32), sabotage);
  running = &world;
  for (int rank = 0; rank < options.ranks; ++rank) world.set_program(rank, programs[static_cast<std::size_t>(rank)]);
  return world.run();
}

// ---------------------------------------------------------------- programs of four ranks

template <class Of>
Programs for_each_rank(Of program_of) {
  Programs programs;
  for (int rank = 0; rank < 4; ++rank) programs.push_back(program_of(rank));
  return programs;
}

Program training_of(int rank) {
  return training_program(Training{20, 6, 2, true, true}, static_cast<std::uint64_t>(rank));
}
Programs training() { return for_each_rank(training_of); }
/// That rank begins late.
Programs training_begun_late(int rank) {
  Programs programs = training();
  Program& late = programs[static_cast<std::size_t>(rank)];
  late.insert(late.begin(), pause(2000));
  return programs;
}
/// That rank is late in every step.
Programs training_with_a_late(int rank) {
  Programs programs = training();
  Program& late = programs[static_cast<std::size_t>(rank)];
  for (std::size_t i = 20; i < late.size(); i += 20) {
    late.insert(late.begin() + static_cast<std::ptrdiff_t>(i), pause(2000));
  }
  return programs;
}

/// Rank 0 is always ahead, so that its submissions are in flight when their ids are given away.
Programs with_one_ahead() {
  return for_each_rank([](int rank) {
    Program program;
    for (int step = 0; step < 10; ++step) {
      for (int i = 0; i < 20; ++i) {
        program.push_back(submit("grad" + std::to_string(i), i));
        if (rank != 0) program.push_back(pause(50));
      }
      program.push_back(wait_all());
    }
    program.push_back(leave());
    return program;
  });
}

/// All wait in the middle of a step.
Programs skewed() {
  return for_each_rank([](int) {
    Program program;
    for (int step = 0; step < 6; ++step) {
      for (int i = 0; i < 10; ++i) {
        program.push_back(submit("grad" + std::to_string(i), i));
        if (i == 4 || i == 9) program.push_back(wait_all());
      }
      program.push_back(end_step());
    }
    program.push_back(leave());
    return program;
  });
}

/// Each has data for another number of steps, and half of a step in flight when it joins.
Programs joining() {
  return for_each_rank([](int rank) {
    Program program;
    for (int step = 0; step < 2 + rank; ++step) {
      for (int i = 0; i < 6; ++i) program.push_back(submit("grad" + std::to_string(i), i));
      program.push_back(wait_all());
    }
    for (int i = 0; i < 3; ++i) program.push_back(submit("grad" + std::to_string(i), i));
    program.insert(program.end(), {join(), submit("after", 6), wait_all(), leave()});
    return program;
  });
}

/// Names in another order on every rank and fewer ids than names: counts are on their way when their ids are given
/// away.
Programs crossing() {
  return for_each_rank([](int rank) {
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
    add(program, {wait_all(), leave()});
    return program;
  });
}

/// One tensor, with the signature of this number on rank 3.
Programs one_tensor(int of_rank_3) {
  return for_each_rank([&](int rank) { return Program{submit("x", rank == 3 ? of_rank_3 : 0), wait_all(), leave()}; });
}

Programs with_a_death() {
  Programs programs = training();
  programs[3] = {submit("grad0", 0), die()};
  return programs;
}

// ---------------------------------------------------------------- bugs

/// From this rank or node, or at it, such messages get lost; -1: anywhere.
template <class Lost>
auto lose(int where) {
  return [where](int who, const auto& message) {
    return (where >= 0 && who != where) || !std::holds_alternative<Lost>(message);
  };
}
/// The first of them alone.
template <class Lost>
auto lose_first(int where) {
  return [where, lost = false](int who, const auto& message) mutable {
    return who != where || !std::holds_alternative<Lost>(message) || std::exchange(lost, true);
  };
}
/// All such entries are changed there.
template <class Changed, class Change>
auto change_at(int where, Change change) {
  return [where, change](int who, auto& message) {
    if (auto* one = std::get_if<Changed>(&message); who == where && one != nullptr) change(*one);
    return true;
  };
}
/// The log has them changed. Only the first one for which `change` says true.
template <class Changed, class Change>
auto decide_once(Change change) {
  return [change, done = false](std::vector<LogEntry>& entries) mutable {
    for (std::size_t i = 0; i < entries.size() && !done; ++i) {
      if (auto* one = std::get_if<Changed>(&entries[i])) done = change(*one, entries);
    }
  };
}
/// The how-manieth count of rank 1 gets lost.
auto lose_count(int number) {
  return [number, counts = 0](int rank, TensorId id, control::CountWord&) mutable {
    return rank != 1 || id < core::kReservedIds || ++counts != number;
  };
}
void reverse(control::BatchAppended& batch) { std::reverse(batch.members.begin(), batch.members.end()); }
/// Rank 3 says another signature than it has.
auto declare_as(int signature) {
  return change_at<control::Declared>(
      3, [signature](control::Declared& one) { one.variants[0].signature = allreduces(2)[std::size_t(signature)]; });
}
/// What rank 2 declares, its leader hears of rank 3, too.
bool declare_for_rank_3(int rank, UpMessage& message) {
  if (rank != 2 || !std::holds_alternative<control::Declared>(message)) return true;
  UpMessage forged = message;
  for (auto& variant : std::get<control::Declared>(forged).variants) variant.ranks = {3};
  running->relay(1).on_message(1, forged);
  return true;
}
/// Whatever rank 0 has counted, its leader believes of rank 1 too.
bool count_for_rank_1(int rank, TensorId id, control::CountWord& word) {
  if (rank == 0 && id >= core::kReservedIds) running->relay(0).on_count(1, id, word);
  return true;
}
/// The first step's declarations of rank 0 pass; those that are sent again because their ids were evicted do not.
auto lose_what_is_sent_again() {
  return [declared = 0](int rank, UpMessage& message) mutable {
    const auto* d = std::get_if<control::Declared>(&message);
    if (rank != 0 || d == nullptr || d->id != core::kNoTensor || d->round != 1) return true;
    return ++declared <= 20;
  };
}

/// The first list of submissions that is not empty loses one.
bool forget_a_submission(control::RankJoined& joined, std::vector<LogEntry>&) {
  if (joined.submissions.empty()) return false;
  joined.submissions.pop_back();
  return true;
}
void forget_rank_0(control::RankJoined& joined) {
  if (joined.rank == 0) joined.submissions.clear();
}
bool end_with_another(control::JoinEnded& ended, std::vector<LogEntry>&) {
  ended.last = (ended.last + 1) % 4;
  return true;
}
bool append_again(control::PlannedBatch& batch, std::vector<LogEntry>& entries) {
  const LogEntry again = batch;
  entries.push_back(again);
  return true;
}
bool leave_one_out(control::BatchAppended& batch, std::vector<LogEntry>&) {
  if (batch.members.size() < 2) return false;
  batch.members.pop_back();
  return true;
}
bool go_on(control::Closed&, std::vector<LogEntry>& entries) {
  entries.emplace_back(control::RankDeparted{0});
  return true;
}
bool lose_completions(int rank, TensorId id, control::CountWord&) { return rank != 1 || id != core::kCompleted; }
auto lose_entry(int number) {
  return [number, read = 0](int node, LogEntry&) mutable { return node != 1 || ++read != number; };
}

/// Nothing is seen in these programs but with the bug.
void sees(const char* bug, const Programs& programs, const Sabotage& sabotage, const char* what,
          const Options& options = {}) {
  SCOPED_TRACE(bug);
  EXPECT_EQ(run(options, programs), "");
  const std::string seen = run(options, programs, sabotage);
  EXPECT_NE(seen.find(what), std::string::npos) << seen;
}
constexpr const char* kForEver = "waits for ever";

TEST(Checker, SeesBugsOfCountsAndDeclarations) {
  Options crowded;  // more names than ids: every step evicts and assigns
  crowded.capacity = 12;
  sees("forwarded before all children have spoken", training_with_a_late(1), {.count = count_for_rank_1},
       "has not made");
  sees("counted for somebody else", training_begun_late(3), {.message = declare_for_rank_3}, "has not made");
  sees("not sent again", with_one_ahead(), {.message = lose_what_is_sent_again()}, kForEver, crowded);
  sees("a lost count", training(), {.count = lose_count(25)}, kForEver);
  sees("lost completions", training(), {.count = lose_completions}, kForEver);
  sees("a disagreement is hushed up", one_tensor(1), {.message = declare_as(0)}, "on which ranks disagree");
  sees("what all agreed on fails", one_tensor(0), {.message = declare_as(1)}, "on which ranks agree");
}

TEST(Checker, SeesBugsOfJoins) {
  using control::RankJoined;
  sees("not passed on", joining(), {.message = lose<control::Joined>(2)}, kForEver);
  sees("a submission is forgotten", joining(), {.decided = decide_once<RankJoined>(forget_a_submission)},
       "with other submissions than it has made");
  sees("other contributors", joining(), {.rank_reads = change_at<RankJoined>(3, forget_rank_0)},
       "with other contributors");
  sees("ends with another rank", joining(), {.decided = decide_once<control::JoinEnded>(end_with_another)},
       "with another last rank");
}

TEST(Checker, SeesBugsOfBatches) {
  using control::BatchAppended;
  sees("deaf to parts awaited", skewed(), {.relayed = lose<control::PartAwaited>(0)}, kForEver);
  sees("appended twice", training(), {.decided = decide_once<control::PlannedBatch>(append_again)}, "has not made");
  sees("without a member", training(), {.decided = decide_once<BatchAppended>(leave_one_out)}, kForEver);
  sees("another order on a node", training(), {.node_reads = change_at<BatchAppended>(1, reverse)},
       "node 1 reads another log");
  sees("missed by a node", training(), {.node_reads = lose_entry(30)}, "node 1 reads another log");
  sees("another order on a rank", training(), {.rank_reads = change_at<BatchAppended>(3, reverse)},
       "rank 3 runs submission");
  sees("missed by a rank", training(), {.rank_reads = lose_first<BatchAppended>(2)}, kForEver);
}

TEST(Checker, SeesBugsOfFailuresAndEnds) {
  sees("a failure that is not heard of", one_tensor(1), {.rank_reads = lose<control::Failed>(1)},
       "rank 1 waits for ever");
  sees("a death that nobody reports", with_a_death(), {.relayed = lose<control::RankLost>(-1)}, kForEver);
  sees("an entry behind the end", training(), {.decided = decide_once<control::Closed>(go_on)},
       "follows the end of the log");
}

TEST(Checker, SeesCountsThatPassForTheCurrentGeneration) {
  const Programs programs = crossing();
  int caught = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Options options;
    options.capacity = core::kReservedIds + 5;
    options.seed = seed;
    ASSERT_EQ(run(options, programs), "");
    std::map<TensorId, std::uint16_t> generation;
    Sabotage sabotage;
    sabotage.decided = [&generation](std::vector<LogEntry>& entries) {
      for (const LogEntry& entry : entries) {
        const auto* assigned = std::get_if<control::Assigned>(&entry);
        if (assigned != nullptr) generation[assigned->id] = assigned->generation;
      }
    };
    sabotage.count = [&generation](int, TensorId id, control::CountWord& word) {
      if (id >= core::kReservedIds && word.count > 0) word.generation = generation[id];
      return true;
    };
    if (!run(options, programs, sabotage).empty()) ++caught;
  }
  EXPECT_GT(caught, 0);
}

}  // namespace
}  // namespace kolo::simulator
