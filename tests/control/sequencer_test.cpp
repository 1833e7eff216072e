// SPDX-License-Identifier: Apache-2.0
#include "control/sequencer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/control/only.hpp"

namespace kolo::control {
namespace {

using core::kNoTensor;
using core::TensorId;
using Ids = std::vector<TensorId>;
using Ranks = std::vector<std::int32_t>;
using Time = Sequencer::Time;

class SequencerTest : public testing::Test {
 protected:
  explicit SequencerTest(SequencerOptions chosen = defaults()) : options(chosen), sequencer(chosen) {}
  static SequencerOptions defaults() {
    SequencerOptions options;
    options.size = 4;
    options.fusion_threshold = 400;
    return options;
  }

  /// All ranks declare it.
  void declare(const std::string& name, core::Round round, std::int64_t elements = 10, TensorId id = kNoTensor,
               std::uint16_t generation = 0) {
    Ranks all(static_cast<std::size_t>(options.size));
    std::iota(all.begin(), all.end(), 0);
    sequencer.on_message(Declared{0, name, round, id, generation, {{signature_of(elements), all}}}, now);
  }
  void count(TensorId id, CountWord word) { sequencer.on_message(Counted{id, word}, now); }
  void complete(std::uint64_t batches) { count(core::kCompleted, {0, batches}); }
  void end_step() { count(core::kSteps, {0, ++steps}); }
  void answer(std::uint64_t query, std::int32_t rank, bool submitted) {
    Answer answer;
    answer.query = query;
    answer.rank = rank;
    answer.submitted = submitted;
    sequencer.on_message(answer, now);
  }
  void all_answer(std::uint64_t query, const Ranks& missing) {
    for (std::int32_t rank = 0; rank < options.size; ++rank) {
      answer(query, rank, std::find(missing.begin(), missing.end(), rank) == missing.end());
    }
  }
  std::vector<LogEntry> decide() {
    sequencer.decide(now);
    return std::exchange(sequencer.outbox(), {});
  }
  /// Declares these names, of 10 elements each, one batch each; their ids count from 3.
  void learn(int names) {
    for (int i = 0; i < names; ++i) {
      declare("t" + std::to_string(i), 1);
      decide();
      complete(++batches);
    }
    end_step();
  }

  SequencerOptions options;
  Sequencer sequencer;
  Time now{};
  std::uint64_t batches = 0;
  std::uint64_t steps = 0;
};

TEST_F(SequencerTest, NamesAndRunsWhatAllAgreeOn) {
  declare("x", 1);
  auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  const auto& assigned = std::get<Assigned>(entries[0]);
  EXPECT_EQ(assigned.id, 3U);
  EXPECT_EQ(assigned.generation, 1);
  EXPECT_EQ(assigned.name, "x");
  EXPECT_EQ(assigned.signature, signature_of(10));
  EXPECT_EQ(std::get<BatchAppended>(entries[1]).members, Ids{3});
  count(3, {1, 2});
  EXPECT_EQ(only<BatchAppended>(decide()).members, Ids{3});
  count(3, {7, 3});
  EXPECT_TRUE(decide().empty()) << "of another generation";
}

TEST_F(SequencerTest, GivesAChangedSignatureANewGeneration) {
  declare("x", 1);
  decide();
  declare("x", 2, 11, 3, 1);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<Assigned>(entries[0]).id, 3U);
  EXPECT_EQ(std::get<Assigned>(entries[0]).generation, 2);
  EXPECT_EQ(std::get<BatchAppended>(entries[1]).members, Ids{3});
}

TEST_F(SequencerTest, KeepsTheGenerationWhenTheSameIsDeclaredAgain) {
  declare("x", 1);
  decide();
  sequencer.on_message(Declared{0, "x", 2, 3, 1, {{signature_of(10), {0}}, {std::nullopt, {1, 2, 3}}}}, now);
  EXPECT_EQ(only<BatchAppended>(decide()).members, Ids{3});
}

TEST_F(SequencerTest, FailsARoundOnWhichRanksDisagree) {
  declare("x", 1);
  decide();
  sequencer.on_message(Declared{0, "x", 2, 3, 1, {{signature_of(11), {2}}, {std::nullopt, {0, 1, 3}}}}, now);
  const auto failed = only<Failed>(decide());
  EXPECT_EQ(failed.request.name, "x");
  EXPECT_EQ(failed.request.round, 2U);
  EXPECT_EQ(failed.code, ErrorCode::mismatch);
  EXPECT_EQ(failed.message, "tensor \"x\" of allreduce: ranks disagree about shape: [10] on ranks 0, 1 and 3; [11] on "
                            "rank 2. The operation did not run; submit the same on every rank.");
  count(3, {1, 3});
  EXPECT_EQ(only<BatchAppended>(decide()).members, Ids{3});
}

TEST_F(SequencerTest, GathersWhileTheBackendIsBusyUpToTheThreshold) {
  options.open_batches = 1;
  Sequencer small(options);
  const auto say = [&](const std::string& name, std::int64_t elements) {
    small.on_message(Declared{0, name, 1, kNoTensor, 0, {{signature_of(elements), {0, 1, 2, 3}}}}, now);
    small.decide(now);
  };
  say("a", 10);
  for (const char* name : {"b", "c", "d"}) say(name, 40);  // 160 bytes each: two to a batch
  say("huge", 1000);
  small.outbox().clear();
  std::vector<Ids> found;
  for (std::uint64_t done = 1; done <= 4; ++done) {
    small.on_message(Counted{core::kCompleted, {0, done}}, now);
    small.decide(now);
    for (const auto& entry : std::exchange(small.outbox(), {})) found.push_back(std::get<BatchAppended>(entry).members);
  }
  EXPECT_EQ(found, (std::vector<Ids>{{4, 5}, {6}, {7}}));
}

TEST_F(SequencerTest, RunsEverythingAloneWhenTheThresholdIsZero) {
  options.fusion_threshold = 0;
  options.open_batches = 1;
  Sequencer single(options);
  for (const char* name : {"a", "b", "c"}) {
    single.on_message(Declared{0, name, 1, kNoTensor, 0, {{signature_of(0), {0, 1, 2, 3}}}}, now);
  }
  single.decide(now);
  single.on_message(Counted{core::kCompleted, {0, 1}}, now);
  single.decide(now);
  EXPECT_EQ(std::get<BatchAppended>(single.outbox().back()).members, Ids{4});
}

TEST_F(SequencerTest, ABatchIsOfOneKind) {
  options.open_batches = 1;
  Sequencer mixed(options);
  const auto say = [&](const std::string& name, core::CollectiveKind kind) {
    core::Signature signature = signature_of(1);
    signature.kind = kind;
    mixed.on_message(Declared{0, name, 1, kNoTensor, 0, {{signature, {0, 1, 2, 3}}}}, now);
  };
  using Kind = core::CollectiveKind;
  const Kind kinds[] = {Kind::broadcast, Kind::broadcast, Kind::allreduce,      Kind::allgather,     Kind::allgather,
                        Kind::alltoall,  Kind::alltoall,  Kind::reduce_scatter, Kind::reduce_scatter};
  for (int i = 0; i < 9; ++i) say("t" + std::to_string(i), kinds[i]);
  std::vector<Ids> found;
  for (std::uint64_t done = 0; done < 5; ++done) {
    mixed.on_message(Counted{core::kCompleted, {0, done}}, now);
    mixed.decide(now);
    for (const auto& entry : std::exchange(mixed.outbox(), {})) {
      if (const auto* batch = std::get_if<BatchAppended>(&entry)) found.push_back(batch->members);
    }
  }
  EXPECT_EQ(found, (std::vector<Ids>{{3, 4}, {5}, {6, 7}, {8, 9}, {10, 11}}));
}

/// Nobody knows the bytes of such a batch, so it is bounded by its number of tensors. A device's goes alone.
TEST_F(SequencerTest, ABatchWhoseRowsDifferHasABoundedNumberOfTensors) {
  options.open_batches = 1;
  Sequencer uneven(options);
  core::Signature signature = signature_of(1);
  signature.kind = core::CollectiveKind::allgather;
  const auto say = [&](const std::string& name) {
    uneven.on_message(Declared{0, name, 1, kNoTensor, 0, {{signature, {0, 1, 2, 3}}}}, now);
  };
  for (int i = 0; i < 65; ++i) say("t" + std::to_string(i));
  signature.tensors.assign(64, signature.tensors.front());
  say("as many as a batch has");
  signature.tensors.resize(1);
  signature.device = DeviceKind::cuda;
  say("d0");
  say("d1");
  signature.device = DeviceKind::cpu;
  say("behind one that goes alone");
  std::vector<std::size_t> found;
  for (std::uint64_t done = 0; done < 6; ++done) {
    uneven.on_message(Counted{core::kCompleted, {0, done}}, now);
    uneven.decide(now);
    for (const auto& entry : std::exchange(uneven.outbox(), {})) {
      if (const auto* batch = std::get_if<BatchAppended>(&entry)) found.push_back(batch->members.size());
    }
  }
  EXPECT_EQ(found, (std::vector<std::size_t>{64, 1, 1, 1, 1, 1}));
}

TEST_F(SequencerTest, FreezesARepeatedStepAndCutsItAnew) {
  learn(12);
  for (TensorId id = 3; id < 15; ++id) {
    count(id, {1, 2});
    decide();
    complete(++batches);
  }
  end_step();
  const auto plan = only<PlanDefined>(decide());
  EXPECT_EQ(plan.batches, (std::vector<Ids>{{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {13, 14}}));
  // Batches in any order; nothing before the last member.
  count(13, {1, 3});
  EXPECT_TRUE(decide().empty());
  count(14, {1, 3});
  EXPECT_EQ(only<PlannedBatch>(decide()).number, 1U);
  for (TensorId id = 3; id < 13; ++id) count(id, {1, 3});
  EXPECT_EQ(only<PlannedBatch>(decide()).number, 0U);
  end_step();
  EXPECT_TRUE(decide().empty()) << "the plan holds";
}

TEST_F(SequencerTest, SaysForWhichRankABatchWaited) {
  sequencer.on_message(Declared{0, "x", 1, kNoTensor, 0, {{signature_of(10), {0, 1, 2, 3}}}, {}, 2}, now);
  EXPECT_EQ(std::get<BatchAppended>(decide().at(1)).last, 2);
  declare("y", 1);
  EXPECT_EQ(std::get<BatchAppended>(decide().at(1)).last, -1);
  complete(2);
  sequencer.on_message(Counted{4, {1, 2}, 3}, now);
  sequencer.on_message(Counted{3, {1, 2}, 1}, now);
  EXPECT_EQ(only<BatchAppended>(decide()).last, 1) << "of the tensor that came last";
  sequencer.on_message(SequenceGrown{0, 1, {{0, 2, signature_of(1)}}, 0}, now);
  EXPECT_EQ(only<SequenceAppended>(decide()).last, 0);
}

TEST_F(SequencerTest, SaysThatABatchWaitedForNoRankWhereItWaitedForSpace) {
  learn(6);
  std::uint64_t begun = batches;
  for (TensorId id = 3; id < 7; ++id, ++begun) {
    sequencer.on_message(Counted{id, {1, 2}, 2}, now);
    EXPECT_EQ(only<BatchAppended>(decide()).last, 2);
  }
  sequencer.on_message(Counted{7, {1, 2}, 2}, now);
  sequencer.on_message(SequenceGrown{0, 1, {{0, 1, signature_of(1)}}, 2}, now);
  EXPECT_TRUE(decide().empty()) << "four are open";
  complete(begun);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<BatchAppended>(entries[0]).last, -1);
  EXPECT_EQ(std::get<SequenceAppended>(entries[1]).last, -1);
  sequencer.on_message(Counted{8, {1, 2}, 2}, now);
  EXPECT_EQ(only<BatchAppended>(decide()).last, 2);
}

class PlanTest : public SequencerTest {
 protected:
  PlanTest() {
    learn(4);
    for (TensorId id = 3; id < 7; ++id) {
      count(id, {1, 2});
      decide();
      complete(++batches);
    }
    end_step();
    decide();
  }
};

TEST_F(PlanTest, ABatchWaitedForTheLastOfItsMembers) {
  sequencer.on_message(Counted{5, {1, 3}, 0}, now);
  sequencer.on_message(Counted{3, {1, 3}, 1}, now);
  sequencer.on_message(Counted{6, {1, 3}, 2}, now);
  EXPECT_TRUE(decide().empty());
  sequencer.on_message(Counted{4, {1, 3}, 3}, now);
  EXPECT_EQ(only<PlannedBatch>(decide()).last, 3);
}

TEST_F(PlanTest, AnInterestBreaksItAndLeavesACut) {
  count(3, {1, 3});
  count(5, {1, 3});
  sequencer.on_message(PartAwaited{1, 0, 0, {4, 6}, 3}, now);
  auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<PlanVoided>(entries[0]));
  EXPECT_EQ(std::get<BatchAppended>(entries[1]).members, (Ids{3, 5}));
  complete(++batches);
  count(4, {1, 3});
  count(6, {1, 3});
  decide();
  complete(++batches);
  end_step();
  EXPECT_EQ(only<PlanDefined>(decide()).batches, (std::vector<Ids>{{3, 5}, {4, 6}}));
  EXPECT_EQ(sequencer.counters().plans_broken, 1U);
}

TEST_F(PlanTest, AnInterestThatIsOutOfDateBreaksNothing) {
  count(4, {1, 3});
  sequencer.on_message(PartAwaited{1, 0, 0, {4}, 3}, now);
  sequencer.on_message(PartAwaited{1, 9, 0, {4}, 3}, now);
  EXPECT_TRUE(decide().empty());
}

TEST_F(PlanTest, AChangedSignatureVoidsItAndRunsWhatIsReady) {
  count(3, {1, 3});
  declare("t1", 3, 11, 4, 1);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<PlanVoided>(entries[0]));
  EXPECT_EQ(std::get<Assigned>(entries[1]).generation, 2);
  EXPECT_EQ(std::get<BatchAppended>(entries[2]).members, (Ids{3, 4}));
}

TEST_F(PlanTest, AFailedMemberVoidsIt) {
  count(3, {1, 3});
  sequencer.on_message(Declared{0, "t1", 3, 4, 1, {{signature_of(11), {2}}, {std::nullopt, {0, 1, 3}}}}, now);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<PlanVoided>(entries[0]));
  EXPECT_TRUE(std::holds_alternative<Failed>(entries[1]));
  EXPECT_EQ(std::get<BatchAppended>(entries[2]).members, Ids{3});
}

TEST_F(PlanTest, AWarningFreesWhatOnlyWaitsForItsBatch) {
  count(3, {1, 3});
  sequencer.on_message(Overdue{0, {0, "t0", 3}, 60}, now);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<BatchAppended>(entries[1]).members, Ids{3});
}

TEST_F(PlanTest, AnotherTensorGoesInBetween) {
  count(3, {1, 3});
  declare("loss", 1);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<BatchAppended>(entries[1]).members, Ids{7});
}

TEST_F(PlanTest, GrowsWhenSomethingNewRepeats) {
  for (core::Round round = 3; round < 5; ++round) {
    for (TensorId id = 3; id < 7; ++id) count(id, {1, round});
    if (round == 3) {
      declare("new", 1);
    } else {
      count(7, {1, 2});
    }
    decide();
    complete(batches += 2);
    end_step();
  }
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<PlanDefined>(entries[1]).batches, (std::vector<Ids>{{3, 4, 5, 6, 7}}));
}

/// One batch at a time, of at most ten tensors of ten elements.
class PriorityTest : public SequencerTest {
 protected:
  PriorityTest() : SequencerTest(one_at_a_time()) {}
  explicit PriorityTest(const SequencerOptions& chosen) : SequencerTest(chosen) {}
  static SequencerOptions one_at_a_time() {
    SequencerOptions options = defaults();
    options.open_batches = 1;
    return options;
  }
  static core::Signature urgent(int priority, std::int64_t elements) {
    core::Signature signature = signature_of(elements);
    signature.priority = priority;
    return signature;
  }
  /// All ranks declare it for the first time.
  void declare_as(const std::string& name, int priority, std::int64_t elements = 10) {
    sequencer.on_message(Declared{0, name, 1, kNoTensor, 0, {{urgent(priority, elements), {0, 1, 2, 3}}}}, now);
  }
  /// What runs, one batch after the other, until nothing waits any more; a sequence's batch is empty.
  std::vector<Ids> drain() {
    std::vector<Ids> found;
    for (bool runs = true; runs;) {
      complete(++batches);
      runs = false;
      for (const LogEntry& entry : decide()) {
        const std::size_t before = found.size();
        if (const auto* batch = std::get_if<BatchAppended>(&entry)) found.push_back(batch->members);
        if (const auto* batch = std::get_if<PlannedBatch>(&entry)) found.push_back(plan.at(batch->number));
        if (std::holds_alternative<SequenceAppended>(entry)) found.emplace_back();
        runs = runs || found.size() > before;
      }
    }
    return found;
  }
  /// Two steps of these tensors; what the plan is then. All but the first, which runs at once, become ready while that
  /// runs. Ids count from 3.
  std::vector<Ids> learn_plan(const std::vector<int>& priorities, std::int64_t elements = 10) {
    for (core::Round round = 1; round < 3; ++round) {
      for (std::size_t i = 0; i < priorities.size(); ++i) {
        if (round == 1) {
          declare_as("t" + std::to_string(i), priorities[i], elements);
        } else {
          count(static_cast<TensorId>(3 + i), {1, round});
        }
        decide();
      }
      drain();
      end_step();
    }
    return only<PlanDefined>(decide()).batches;
  }

  std::vector<Ids> plan;
};

TEST_F(PriorityTest, TheHighestGoesFirstAndEqualsInTheOrderInWhichTheyBecameReady) {
  declare_as("open", 0);
  decide();
  const int priorities[] = {0, 5, -1, 5, 0, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()};
  for (int i = 0; i < 7; ++i) declare_as("t" + std::to_string(i), priorities[i], 90);
  decide();
  EXPECT_EQ(drain(), (std::vector<Ids>{{10}, {5}, {7}, {4}, {8}, {6}, {9}}));
}

TEST_F(PriorityTest, ABatchIsFilledUpWithWhatIsLessUrgent) {
  declare_as("open", 0);
  decide();
  declare_as("later", 0, 40);
  declare_as("a", 7, 40);
  declare_as("b", 7, 40);
  declare_as("c", 3, 20);
  decide();
  EXPECT_EQ(drain(), (std::vector<Ids>{{5, 6, 7}, {4}}));
}

TEST_F(PriorityTest, UnnamedCallsHaveNone) {
  declare_as("open", 0);
  decide();
  declare_as("low", -1);
  sequencer.on_message(SequenceGrown{0, 1, {{0, 1, signature_of(10)}}}, now);
  declare_as("high", 1);
  decide();
  EXPECT_EQ(drain(), (std::vector<Ids>{{5}, {}, {4}}));
}

TEST_F(PriorityTest, RanksMustAgreeOnIt) {
  sequencer.on_message(Declared{0, "x", 1, kNoTensor, 0, {{urgent(0, 10), {0, 1, 3}}, {urgent(5, 10), {2}}}}, now);
  EXPECT_EQ(only<Failed>(decide()).message,
            "tensor \"x\" of allreduce: ranks disagree about priority: 0 on ranks 0, 1 and 3; 5 on rank 2. The "
            "operation did not run; submit the same on every rank.");
}

TEST_F(PriorityTest, AnotherOneIsAnotherSignature) {
  declare_as("x", 0, 90);
  decide();
  declare_as("y", 3, 90);
  sequencer.on_message(Declared{0, "x", 2, 3, 1, {{urgent(5, 90), {0, 1, 2, 3}}}}, now);
  const auto assigned = std::get<Assigned>(decide().at(1));
  EXPECT_EQ(assigned.id, 3U);
  EXPECT_EQ(assigned.generation, 2);
  EXPECT_EQ(drain(), (std::vector<Ids>{{3}, {4}}));
}

TEST_F(PriorityTest, APlanIsCutInTheOrderInWhichTensorsBecomeReady) {
  // The log had {3}, {6, 5, 4}.
  EXPECT_EQ(learn_plan({1, 2, 3, 4}), (std::vector<Ids>{{3, 4, 5, 6}}));
}

TEST_F(PriorityTest, APlannedBatchEndsBeforeWhatItsUrgentMemberWouldWaitFor) {
  EXPECT_EQ(learn_plan({0, 0, 9, 0, 0, 3}), (std::vector<Ids>{{3, 4, 5}, {6, 7, 8}}));
}

TEST_F(PriorityTest, APlannedBatchHasTheHighestPriorityOfItsMembers) {
  plan = learn_plan({1, 2, 0, 4, 0, 0}, 40);
  ASSERT_EQ(plan, (std::vector<Ids>{{3, 4}, {5, 6}, {7, 8}}));
  declare_as("open", 0);
  decide();
  declare_as("between", 3, 90);
  for (const TensorId id : Ids{7, 8, 3, 4, 5, 6}) count(id, {1, 3});
  decide();
  EXPECT_EQ(drain(), (std::vector<Ids>{{5, 6}, {10}, {3, 4}, {7, 8}}));
}

TEST_F(PriorityTest, AVoidedPlanGivesItsMembersTheirPlacesBack) {
  plan = learn_plan({1, 2, 0, 4}, 40);
  ASSERT_EQ(plan, (std::vector<Ids>{{3, 4}, {5, 6}}));
  declare_as("open", 0);
  decide();
  for (const TensorId id : Ids{3, 4, 6}) count(id, {1, 3});
  sequencer.on_message(PartAwaited{1, 0, 1, {5}, 3}, now);
  decide();
  EXPECT_EQ(drain(), (std::vector<Ids>{{6, 4}, {3}}));
}

class PatienceTest : public PriorityTest {
 protected:
  PatienceTest() : PriorityTest(patient()) {}
  static SequencerOptions patient() {
    SequencerOptions options = one_at_a_time();
    options.patience = 3;
    options.plan = false;
    return options;
  }
};

TEST_F(PatienceTest, WhatWasOvertakenForLongGoesNext) {
  declare_as("high", 5, 90);  // ready again and again
  decide();
  declare_as("low", -1, 90);
  declare_as("lower", -2, 90);
  std::vector<Ids> found;
  for (core::Round round = 2; round < 9; ++round) {
    count(3, {1, round});
    complete(++batches);
    for (const LogEntry& entry : decide()) {
      if (const auto* batch = std::get_if<BatchAppended>(&entry)) found.push_back(batch->members);
    }
    if (found.back() != Ids{3}) --round;
  }
  EXPECT_EQ(found, (std::vector<Ids>{{3}, {3}, {3}, {4}, {5}, {3}, {3}, {3}, {3}}));
}

class CrowdedTest : public SequencerTest {
 protected:
  CrowdedTest() : SequencerTest(with_capacity(5)) {}
  static SequencerOptions with_capacity(std::uint32_t capacity) {
    SequencerOptions options = defaults();
    options.capacity = capacity;
    options.open_batches = 1;
    return options;
  }
};

TEST_F(CrowdedTest, EvictsTheLeastRecentlyUsed) {
  declare("a", 1);
  decide();
  complete(1);
  declare("b", 1);
  decide();
  complete(2);
  count(3, {1, 2});
  decide();
  complete(3);
  declare("c", 1);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(std::get<Evicted>(entries[0]).id, 4U);
  EXPECT_EQ(std::get<Evicted>(entries[0]).generation, 1);
  EXPECT_EQ(std::get<Assigned>(entries[1]).id, 4U);
  EXPECT_EQ(std::get<Assigned>(entries[1]).generation, 2);
  EXPECT_EQ(sequencer.counters().evictions, 1U);
  declare("b", 2, 10, 4, 1);
  EXPECT_TRUE(decide().empty()) << "a declaration that refers to an evicted generation is void";
}

TEST_F(CrowdedTest, LetsANewNameWaitUntilAnIdIsNotReady) {
  declare("a", 1);
  decide();
  declare("b", 1);
  decide();  // a is open, b is ready and waits
  count(3, {1, 2});
  declare("c", 1);
  EXPECT_TRUE(decide().empty());
  complete(1);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(std::get<BatchAppended>(entries[0]).members, Ids{4});  // a is in its second step
  EXPECT_EQ(std::get<Evicted>(entries[1]).id, 4U);
  EXPECT_EQ(std::get<Assigned>(entries[2]).name, "c");
}

TEST_F(SequencerTest, ReportsAStallOnceAndFailsAtTheDeadline) {
  const Overdue warning{0, {0, "x", 1}, 60, false, false, core::CollectiveKind::broadcast};
  sequencer.on_message(warning, now);
  sequencer.on_message(warning, now);
  EXPECT_EQ(only<Query>(decide()).query, 1U);
  answer(1, 0, true);
  answer(1, 3, false);
  answer(1, 1, false);
  EXPECT_TRUE(decide().empty());
  answer(1, 2, true);
  const auto stalled = only<Stalled>(decide());
  EXPECT_EQ(stalled.missing, (Ranks{1, 3}));
  EXPECT_EQ(stalled.waited_s, 60);
  EXPECT_EQ(stalled.request.round, 1U);
  EXPECT_EQ(stalled.kind, core::CollectiveKind::broadcast);
  sequencer.on_message(warning, now);
  EXPECT_TRUE(decide().empty());
  sequencer.on_message(Overdue{0, {0, "x", 1}, 600, true}, now);
  EXPECT_EQ(only<Query>(decide()).query, 2U);
  EXPECT_EQ(sequencer.next_deadline(), now + std::chrono::seconds(5));
  for (std::int32_t rank = 0; rank < 4; ++rank) answer(2, rank, rank != 3);
  const auto faulted = only<Faulted>(decide());
  EXPECT_EQ(faulted.code, ErrorCode::timeout);
  EXPECT_EQ(faulted.rank, 3);
  EXPECT_EQ(faulted.message,
            "tensor \"x\" has not completed within 600 s: rank 3 has not submitted it. The contents of the buffers in "
            "flight are undefined.");
  declare("x", 1);
  EXPECT_TRUE(decide().empty()) << "nothing follows a fault";
  EXPECT_EQ(sequencer.next_deadline(), Time::max());
}

TEST_F(SequencerTest, AnswersAProgramEachTimeAndWarnsNobody) {
  Overdue question{0, {0, "x", 1}, 0.5};
  question.asked = true;
  for (std::uint64_t query = 1; query <= 2; ++query) {
    sequencer.on_message(question, now);
    EXPECT_EQ(only<Query>(decide()).query, query);
    all_answer(query, {3});
    const auto answer = only<Stalled>(decide());
    EXPECT_TRUE(answer.asked);
    EXPECT_EQ(answer.missing, Ranks{3});
  }
  EXPECT_EQ(sequencer.counters().stalls, 0U);
  // A warning that comes while a program's question is open is a warning.
  sequencer.on_message(question, now);
  sequencer.on_message(Overdue{1, {0, "x", 1}, 60}, now);
  EXPECT_EQ(only<Query>(decide()).query, 3U);
  all_answer(3, {3});
  EXPECT_FALSE(only<Stalled>(decide()).asked);
  EXPECT_EQ(sequencer.counters().stalls, 1U);
  // A question because a rank has left makes none of it.
  sequencer.on_message(Overdue{1, {0, "y", 1}, 0}, now);
  Overdue of_y = question;
  of_y.request.name = "y";
  sequencer.on_message(of_y, now);
  EXPECT_EQ(only<Query>(decide()).query, 4U);
  all_answer(4, {3});
  EXPECT_TRUE(only<Stalled>(decide()).asked);
  // After a warning, too, programs are answered.
  sequencer.on_message(question, now);
  EXPECT_EQ(only<Query>(decide()).query, 5U);
}

TEST_F(SequencerTest, LatchesTheFirstLoss) {
  sequencer.on_message(RankLost{2, ErrorCode::rank_lost, "signal 9"}, now);
  sequencer.on_message(RankLost{3, ErrorCode::rank_lost, "signal 9"}, now);
  const auto faulted = only<Faulted>(decide());
  EXPECT_EQ(faulted.rank, 2);
  EXPECT_EQ(faulted.message, "rank 2 was lost: signal 9. The contents of the buffers in flight are undefined.");
}

TEST_F(SequencerTest, TakesTheEndOfARankThatHasLeftForNoLoss) {
  sequencer.on_message(Departed{2}, now);
  decide();
  sequencer.on_message(Overdue{0, {0, "x", 1}, 0}, now);
  EXPECT_EQ(only<Query>(decide()).request.name, "x");
  sequencer.on_message(RankLost{2, ErrorCode::rank_lost, "its process has ended"}, now);
  const std::string sentence = "rank 2 has shut down and will not submit tensor ";
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(std::get<RankDeparted>(entries[0]).gone);
  EXPECT_EQ(std::get<Failed>(entries[1]).message, sentence + "\"x\".") << "though not all have answered";
  sequencer.on_message(Overdue{0, {0, "y", 1}, 0}, now);
  EXPECT_EQ(only<Failed>(decide()).message, sentence + "\"y\".");
  sequencer.on_message(RankLost{1, ErrorCode::rank_lost, "its process has ended"}, now);
  EXPECT_EQ(only<Faulted>(decide()).rank, 1);
}

/// Ranks 2 and 3 are a node, of which rank 2 is the leader.
class TwoNodesTest : public SequencerTest {
 protected:
  TwoNodesTest() : SequencerTest(of_two_nodes()) {}
  static SequencerOptions of_two_nodes() {
    SequencerOptions options = defaults();
    options.speaks_through = {-1, 0, 0, 2};
    return options;
  }
};

TEST_F(TwoNodesTest, WaitForNobodyWhomALeaderCutsOff) {
  sequencer.on_message(Departed{2}, now);
  decide();
  sequencer.on_message(RankLost{2, ErrorCode::rank_lost, "it has stopped"}, now);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<RankDeparted>(entries[0]).rank, 2);
  EXPECT_TRUE(std::get<RankDeparted>(entries[0]).gone);
  const auto& cut_off = std::get<RankDeparted>(entries[1]);
  EXPECT_EQ(cut_off.rank, 3);
  EXPECT_EQ(cut_off.because, 2);
  sequencer.on_message(Overdue{0, {0, "pair", 1, {0, 3}}}, now);
  EXPECT_EQ(
      only<Failed>(decide()).message,
      "rank 2 has shut down, and rank 3 because of that; rank 3 will not ask for group \"pair\" of ranks 0 and 3.");
  sequencer.on_message(RankLost{2, ErrorCode::rank_lost, "its process has ended"}, now);
  EXPECT_TRUE(decide().empty()) << "all of that is known";
  sequencer.on_message(Departed{1}, now);
  decide();
  sequencer.on_message(Departed{0}, now);
  static_cast<void>(only<Closed>(decide()));
}

TEST_F(TwoNodesTest, EndWithTheRoot) {
  sequencer.on_message(Departed{0}, now);
  decide();
  sequencer.on_message(RankLost{0, ErrorCode::rank_lost, "it has stopped"}, now);
  static_cast<void>(only<Closed>(decide()));
}

TEST_F(SequencerTest, NamesARankWhoseCodeThrew) {
  sequencer.on_message(RankLost{1, ErrorCode::user_exception, "no such file"}, now);
  const auto faulted = only<Faulted>(decide());
  EXPECT_EQ(faulted.code, ErrorCode::user_exception);
  EXPECT_EQ(faulted.message, "rank 1 left the job because of an exception: no such file. The contents of the buffers "
                             "in flight are undefined.");
}

// Rank 1 leaves, rank 2 ends because of that, and rank 3 because of rank 2: all of it is because of rank 1.
TEST_F(SequencerTest, NamesTheFirstCauseHoweverManyRanksItPassedThrough) {
  sequencer.on_message(Departed{1}, now);
  EXPECT_EQ(only<RankDeparted>(decide()).because, -1);
  sequencer.on_message(Deserted{2, 1}, now);
  sequencer.on_message(Departed{2}, now);
  EXPECT_EQ(only<RankDeparted>(decide()).because, 1);
  sequencer.on_message(Deserted{3, 2}, now);
  sequencer.on_message(RankLost{3, ErrorCode::rank_lost, "its process has ended"}, now);
  const auto faulted = only<Faulted>(decide());
  EXPECT_EQ(faulted.rank, 1);
  EXPECT_EQ(faulted.message, "rank 1 has left the job, and because of that rank 3 was lost: its process has ended. "
                             "The contents of the buffers in flight are undefined.");
}

TEST_F(SequencerTest, NamesTheFirstCauseOfAnExceptionToo) {
  sequencer.on_message(Departed{1}, now);
  decide();
  sequencer.on_message(Deserted{2, 1}, now);
  sequencer.on_message(RankLost{2, ErrorCode::user_exception, "no such file"}, now);
  const auto faulted = only<Faulted>(decide());
  EXPECT_EQ(faulted.rank, 1);
  EXPECT_EQ(faulted.message,
            "rank 1 has left the job, and because of that rank 2 left the job because of an exception: no such file. "
            "The contents of the buffers in flight are undefined.");
}

TEST_F(SequencerTest, BlamesNobodyForARankThatHasGoneOn) {
  sequencer.on_message(Departed{1}, now);
  decide();
  sequencer.on_message(Deserted{2, 1}, now);
  sequencer.on_message(Deserted{2, -1}, now);
  sequencer.on_message(RankLost{2, ErrorCode::user_exception, "no such file"}, now);
  EXPECT_EQ(only<Faulted>(decide()).rank, 2);
}

TEST_F(SequencerTest, BlamesNobodyWhoHasNotLeft) {
  sequencer.on_message(Deserted{2, 1}, now);
  sequencer.on_message(Departed{2}, now);
  EXPECT_EQ(only<RankDeparted>(decide()).because, -1);
  sequencer.on_message(Deserted{1, 2}, now);
  sequencer.on_message(Deserted{2, 1}, now);  // it has left, and its cause is what it was
  sequencer.on_message(Departed{1}, now);
  EXPECT_EQ(only<RankDeparted>(decide()).because, 2);
}

TEST_F(SequencerTest, SaysOfACallWhoMadeARankLeaveThatItNeeds) {
  sequencer.on_message(Departed{1}, now);
  sequencer.on_message(Deserted{2, 1}, now);
  sequencer.on_message(Departed{2}, now);
  decide();
  sequencer.on_message(Overdue{3, {0, "pair", 1, {2, 3}}}, now);
  all_answer(only<Query>(decide()).query, {2});
  EXPECT_EQ(
      only<Failed>(decide()).message,
      "rank 1 has shut down, and rank 2 because of that; rank 2 will not ask for group \"pair\" of ranks 2 and 3.");
}

TEST_F(SequencerTest, HasAllPushWhenOneIsStarved) {
  sequencer.on_message(Starved{2}, now);
  static_cast<void>(only<Push>(decide()));
  EXPECT_TRUE(decide().empty());
}

TEST_F(SequencerTest, ClosesWhenAllHaveLeft) {
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    sequencer.on_message(Departed{rank}, now);
    EXPECT_EQ(only<RankDeparted>(decide()).rank, rank);
  }
  sequencer.on_message(Departed{3}, now);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Closed>(entries[0]));
}

class AloneTest : public SequencerTest {
 protected:
  AloneTest() : SequencerTest(of_one_rank()) {}
  static SequencerOptions of_one_rank() {
    SequencerOptions options = defaults();
    options.size = 1;
    return options;
  }
};

/// Steps are recognised by repetition: what begins a step ends the one before, which would make a plan.
TEST_F(AloneTest, RunsBeforeTheEndWhatWasSubmitted) {
  declare("a", 1);
  declare("b", 1);
  decide();
  complete(1);
  count(3, {1, 2});
  count(4, {1, 2});
  decide();
  complete(2);
  count(3, {1, 3});
  sequencer.on_message(Departed{0}, now);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(std::get<BatchAppended>(entries[0]).members, Ids{3});
  EXPECT_TRUE(std::holds_alternative<Closed>(entries[1]));
}

TEST_F(SequencerTest, FailsWhatARankThatLeftIsMissingFrom) {
  sequencer.on_message(Departed{2}, now);
  decide();
  sequencer.on_message(Overdue{0, {0, "x", 1}, 0}, now);
  EXPECT_EQ(only<Query>(decide()).request.name, "x");
  all_answer(1, {2});
  const auto failed = only<Failed>(decide());
  EXPECT_EQ(failed.code, ErrorCode::rank_lost);
  EXPECT_EQ(failed.message, "rank 2 has shut down "
                            "and will not submit "
                            "tensor \"x\".");
}

/// Whoever leaves when others have failed because of the first to leave has been told of it.
TEST_F(SequencerTest, NamesTheFirstToLeave) {
  const auto reason_of = [this](const char* name, const Ranks& missing) {
    sequencer.on_message(Overdue{0, {0, name, 1}}, now);
    all_answer(only<Query>(decide()).query, missing);
    return only<Failed>(decide()).message;
  };
  sequencer.on_message(Departed{2}, now);
  decide();
  EXPECT_EQ(reason_of("x", {1, 2}), "rank 2 has shut down and will not submit tensor \"x\".");
  sequencer.on_message(Departed{1}, now);
  decide();
  EXPECT_EQ(reason_of("y", {1, 2}), "rank 2 has shut down and will not submit tensor \"y\".");
  EXPECT_EQ(reason_of("z", {1}), "rank 2 has shut down; no later operation can complete.");
}

/// Whoever has left since.
TEST_F(SequencerTest, ALateQuestionHasTheAnswerOfTheFirst) {
  sequencer.on_message(Departed{2}, now);
  decide();
  sequencer.on_message(Overdue{0, {0, "x", 1}, 0}, now);
  EXPECT_EQ(only<Query>(decide()).request.name, "x");
  all_answer(1, {2});
  const std::string first = only<Failed>(decide()).message;
  sequencer.on_message(Departed{3}, now);
  EXPECT_EQ(only<RankDeparted>(decide()).rank, 3);
  sequencer.on_message(Overdue{1, {0, "x", 1}, 0}, now);
  EXPECT_EQ(only<Failed>(decide()).message, first);
}

/// Its node had answered before it submitted and left.
TEST_F(SequencerTest, RunsWhatARankSubmittedBeforeItLeft) {
  sequencer.on_message(Overdue{0, {0, "x", 1}, 60}, now);
  EXPECT_EQ(only<Query>(decide()).query, 1U);
  answer(1, 2, false);
  sequencer.on_message(Departed{2}, now);
  EXPECT_EQ(only<RankDeparted>(decide()).rank, 2);
  for (const std::int32_t rank : {0, 1, 3}) answer(1, rank, rank != 1);
  EXPECT_EQ(only<Query>(decide()).query, 2U) << "asked again";
  declare("x", 1);
  EXPECT_EQ(std::get<BatchAppended>(decide().at(1)).members, Ids{3});
  all_answer(2, {});
  EXPECT_TRUE(decide().empty());
}

TEST_F(SequencerTest, AsksForTheNextWhoAsksIfTheFirstWaitsNoMore) {
  Overdue first{0, {0, "x", 1}, 600, true};
  first.request.serial = 17;
  Overdue second{1, {0, "x", 1}, 60, true};
  second.request.serial = 3;
  sequencer.on_message(first, now);
  sequencer.on_message(second, now);
  const auto query = only<Query>(decide());
  EXPECT_EQ(query.asker, 0);
  EXPECT_EQ(query.request.serial, 17U);
  all_answer(query.query, {0, 2});
  const auto next = only<Query>(decide());
  EXPECT_EQ(next.asker, 1);
  EXPECT_EQ(next.request.serial, 3U);
  all_answer(next.query, {2});
  EXPECT_EQ(only<Faulted>(decide()).message,
            "tensor \"x\" has not completed within 60 s: rank 2 has not submitted it. The contents of the buffers in "
            "flight are undefined.");
}

TEST_F(SequencerTest, WarnsOfRanksThatDoNotAnswer) {
  sequencer.on_message(Overdue{0, {0, "x", 1}, 60}, now);
  EXPECT_EQ(only<Query>(decide()).query, 1U);
  answer(1, 0, true);
  answer(1, 2, false);
  now = sequencer.next_deadline();
  const auto stalled = only<Stalled>(decide());
  EXPECT_EQ(stalled.missing, Ranks{2});
  EXPECT_EQ(stalled.silent, (Ranks{1, 3}));
}

/// Both have left; only one of them had not submitted it.
TEST_F(SequencerTest, NamesNoRankThatHadSubmittedBeforeItLeft) {
  for (const std::int32_t rank : {1, 2}) sequencer.on_message(Departed{rank, {{0, rank == 1 ? 5U : 4U}}}, now);
  decide();
  sequencer.on_message(Overdue{0, {0, "x", 1}}, now);
  all_answer(only<Query>(decide()).query, {2});
  EXPECT_EQ(only<Failed>(decide()).message, "rank 2 has shut down and will not submit tensor \"x\".");
  sequencer.on_message(Overdue{0, {0, kSequence, 5}}, now);
  EXPECT_EQ(only<SequenceEnded>(decide()).message, "rank 2 has shut down and will not submit unnamed call number 5.");
  // One that is gone is needed, whether it had submitted or not.
  sequencer.on_message(RankLost{1, ErrorCode::rank_lost, "its process has ended"}, now);
  decide();
  sequencer.on_message(Overdue{0, {0, "y", 1}}, now);
  EXPECT_EQ(only<Failed>(decide()).message, "rank 1 has shut down and will not submit tensor \"y\".");
}

class SetTest : public SequencerTest {
 protected:
  using SequencerTest::SequencerTest;
  static constexpr TensorId kRow = core::kFirstRow;
  void ask_for(const Ranks& members, const std::string& name = {}) {
    core::Signature add;
    add.kind = core::CollectiveKind::add_process_set;
    add.ranks = members;
    sequencer.on_message(Declared{0, name, 1, kNoTensor, 0, {{add, members}}, members}, now);
  }
  void say(core::SetId set, const std::string& name) {
    sequencer.on_message(Declared{set, name, 1, kNoTensor, 0, {{signature_of(1), {1, 3}}}}, now);
  }
  void drop(const SetAdded& set) { count(set.base + core::kDropped, {set.generation, 1}); }
};

TEST_F(SetTest, AreMadeAndRemoved) {
  ask_for({1, 3}, "pair");
  const auto added = only<SetAdded>(decide());
  EXPECT_EQ(added.set, 1U);
  EXPECT_EQ(added.base, kRow);
  EXPECT_EQ(added.members, (Ranks{1, 3}));
  EXPECT_EQ(added.name, "pair");
  say(1, "x");
  EXPECT_EQ(std::get<BatchAppended>(decide().at(1)).set, 1U);
  drop(added);
  EXPECT_EQ(only<SetRemoved>(decide()).set, 1U);
  drop(added);
  say(1, "y");
  EXPECT_TRUE(decide().empty()) << "of a set that is gone";
  // The row of ids is free again, under another generation.
  ask_for({1, 3});
  const auto again = only<SetAdded>(decide());
  EXPECT_EQ(again.set, 2U);
  EXPECT_EQ(again.base, kRow);
  EXPECT_NE(again.generation, added.generation);
}

TEST_F(SetTest, OfWhichAnOrderIsNotAgreedOnAreNotMade) {
  core::Signature one;
  one.kind = core::CollectiveKind::add_process_set;
  one.ranks = {1, 3};
  core::Signature other = one;
  other.ranks = {3, 1};
  sequencer.on_message(Declared{0, "", 1, kNoTensor, 0, {{one, {1}}, {other, {3}}}, {1, 3}}, now);
  const auto failed = only<Failed>(decide());
  EXPECT_EQ(failed.request.members, (Ranks{1, 3}));
  EXPECT_EQ(failed.message, "the group of ranks 1 and 3: ranks disagree about the order of its ranks: [1, 3] on "
                            "rank 1; [3, 1] on rank 3. The group was not made; give the same order on every rank.");
}

TEST_F(SetTest, LeaveNoPlanBehind) {
  ask_for({1, 3});
  const auto added = only<SetAdded>(decide());
  say(1, "a");
  say(1, "b");
  decide();
  for (std::uint64_t round = 2; round <= 4; ++round) {
    count(added.base + core::kCompleted, {added.generation, round - 1});
    count(3, {1, round});
    count(4, {1, round});
    decide();
  }
  drop(added);
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<PlanVoided>(entries[0]));
  EXPECT_TRUE(std::holds_alternative<SetRemoved>(entries[1]));
  sequencer.on_message(PartAwaited{1, 0, 0, {4}, 9}, now);
  EXPECT_TRUE(decide().empty());
}

TEST_F(SetTest, TakeTheirQuestionsWithThem) {
  ask_for({1, 3});
  const auto added = only<SetAdded>(decide());
  sequencer.on_message(Overdue{1, {1, "x", 1}, 60}, now);
  decide();
  drop(added);
  sequencer.on_message(Departed{3}, now);
  EXPECT_EQ(decide().size(), 2U);
  all_answer(1, {3});
  EXPECT_TRUE(decide().empty());
}

TEST_F(SetTest, AreNotMadeWithARankThatHasLeft) {
  sequencer.on_message(Departed{3}, now);
  decide();
  sequencer.on_message(Overdue{1, {0, "", 1, {1, 3}}, 0}, now);
  EXPECT_EQ(only<Query>(decide()).request.members, (Ranks{1, 3}));
  all_answer(1, {3});
  const auto failed = only<Failed>(decide());
  EXPECT_EQ(failed.request.members, (Ranks{1, 3}));
  EXPECT_EQ(failed.message, "rank 3 has shut down and will not ask for the group of ranks 1 and 3.");
  // Others need not have heard of that.
  sequencer.on_message(Overdue{1, {0, "", 1, {1, 2}}, 0}, now);
  EXPECT_EQ(only<Query>(decide()).query, 2U);
}

/// All rounds of such a request are the first: a question may come late, and then be about one that is over.
TEST_F(SetTest, ALateQuestionAboutARequestThatIsOverHasNoOutcome) {
  sequencer.on_message(Overdue{1, {0, "", 1, {1, 3}}, 60}, now);
  EXPECT_EQ(only<Query>(decide()).query, 1U);
  all_answer(1, {1, 3});
  EXPECT_TRUE(decide().empty()) << "who asked waits no more";
  sequencer.on_message(Overdue{1, {0, "", 1, {1, 3}}, 600, true}, now);
  EXPECT_EQ(only<Query>(decide()).query, 2U);
  answer(2, 1, false);
  answer(2, 3, false);
  EXPECT_TRUE(decide().empty());
  // And the answers to one that is asked in time may come late.
  sequencer.on_message(Overdue{1, {0, "", 1, {1, 3}}, 60}, now);
  EXPECT_EQ(only<Query>(decide()).query, 3U);
  ask_for({1, 3});
  EXPECT_EQ(only<SetAdded>(decide()).set, 1U);
  all_answer(3, {3});
  EXPECT_TRUE(decide().empty());
}

TEST_F(SetTest, CanBe16384AtOnce) {
  for (TensorId i = 0; i < core::kMostSets; ++i) ask_for(i % 2 == 0 ? Ranks{1, 3} : Ranks{0, 2});
  EXPECT_EQ(decide().size(), core::kMostSets);
  ask_for({1, 3});
  EXPECT_EQ(only<Failed>(decide()).message, "the group of ranks 1 and 3 cannot be made: there are 16384 already; "
                                            "drop those that are not used any more");
}

class FewSetsTest : public SetTest {
 protected:
  FewSetsTest() : SetTest(two_sets()) {}
  static SequencerOptions two_sets() {
    SequencerOptions few = defaults();
    few.sets_per_rank = 2;
    return few;
  }
};

TEST_F(FewSetsTest, ARankIsInNoMoreThanItMayBe) {
  ask_for({1, 3});
  ask_for({0, 3});
  const auto entries = decide();
  ASSERT_EQ(entries.size(), 2U);
  ask_for({1, 3});
  EXPECT_EQ(only<Failed>(decide()).message,
            "the group of ranks 1 and 3 cannot be made: rank 3 is in 2 groups already, and can be in no more "
            "(KOLO_GROUPS); drop those that are not used any more");
  ask_for({0, 1});
  EXPECT_EQ(only<SetAdded>(decide()).set, 3U);
  drop(std::get<SetAdded>(entries[1]));
  EXPECT_EQ(only<SetRemoved>(decide()).set, 2U);
  ask_for({1, 2, 3});
  EXPECT_EQ(
      only<Failed>(decide()).message,
      "the group of ranks 1-3 cannot be made: rank 1 is in 2 groups already, and can be in no more (KOLO_GROUPS); "
      "drop those that are not used any more");
  ask_for({2, 3});
  EXPECT_EQ(only<SetAdded>(decide()).set, 4U);
}

}  // namespace
}  // namespace kolo::control
