// SPDX-License-Identifier: Apache-2.0
//
// What the keeper decides, case by case, and its sentences.
#include "membership/keeper.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace kolo::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::Time kBegin{std::chrono::hours(1)};

JobLimits limits_of(int first, int least, int most) {
  JobLimits limits;
  limits.first = first;
  limits.least = least;
  limits.most = most;
  return limits;
}

/// A keeper, and what it wants done as texts: "2: next 1 (0 of 3)".
class Job {
 public:
  Job(const JobLimits& limits, int processes) : keeper(limits) {
    for (int process = 0; process < processes; ++process) be_born(process);
  }

  void be_born(int process) { keeper.born(static_cast<Process>(process), process, 0, now); }
  void say(int process, Topic topic, std::uint64_t generation = 0, const std::string& text = {}) {
    keeper.heard(static_cast<Process>(process), {topic, generation, 0, 0, text}, now);
  }
  void say_all(const std::vector<int>& processes, Topic topic, std::uint64_t generation = 0) {
    for (const int process : processes) say(process, topic, generation);
  }
  void die(int process, bool well = false) { keeper.died(static_cast<Process>(process), well, now); }
  void pass(base::Duration duration) { keeper.tick(now += duration); }

  std::vector<std::string> acts() {
    std::vector<std::string> all;
    for (const Act& act : keeper.take()) all.push_back(text_of(act));
    return all;
  }
  /// The job's first generation runs; what was done until then is not told.
  void run(const std::vector<int>& processes) {
    say_all(processes, Topic::ready);
    say_all(processes, Topic::started, 1);
    ASSERT_EQ(acts().size(), processes.size());
  }

  Keeper keeper;
  base::Time now = kBegin;

 private:
  static std::string text_of(const Act& act) {
    const std::string process = std::to_string(act.process);
    switch (act.kind) {
    case Act::Kind::kill:
      return "kill " + process;
    case Act::Kind::spawn:
      return "spawn in slot " + std::to_string(act.slot);
    case Act::Kind::report:
      return act.notice.text;
    case Act::Kind::send:
      break;
    }
    const Notice& notice = act.notice;
    const std::string generation = std::to_string(notice.generation);
    switch (notice.topic) {
    case Topic::entry:
      return process + ": entry " + generation + " " + notice.text;
    case Topic::change:
      return process + ": change " + generation + (notice.text.empty() ? "" : ", " + notice.text);
    case Topic::next:
      return process + ": next " + generation + " (" + std::to_string(notice.rank) + " of " +
             std::to_string(notice.size) + ")";
    case Topic::ask:
      return process + ": ask";
    case Topic::farewell:
      return process + ": farewell, " + notice.text;
    default:
      return process + ": a process's own topic";
    }
  }
};

using Texts = std::vector<std::string>;

TEST(Keeper, BeginsWithAllInTheOrderInWhichTheyCame) {
  Job job(limits_of(3, 1, 3), 3);
  job.say_all({2, 0}, Topic::ready);
  EXPECT_EQ(job.acts(), Texts());
  job.say(1, Topic::ready);
  EXPECT_EQ(job.acts(), (Texts{"2: next 1 (0 of 3)", "0: next 1 (1 of 3)", "1: next 1 (2 of 3)"}));
}

TEST(Keeper, BeginsWithFewerIfOneHasDiedBefore) {
  Job job(limits_of(3, 2, 3), 3);
  job.say_all({0, 1}, Topic::ready);
  job.die(2);
  EXPECT_EQ(job.acts(), (Texts{"0: next 1 (0 of 2)", "1: next 1 (1 of 2)"}));
}

TEST(Keeper, BeginsWithFewerIfOneDoesNotComeInTime) {
  JobLimits limits = limits_of(3, 2, 3);
  limits.wait = seconds(20);
  Job job(limits, 3);
  job.say_all({0, 1}, Topic::ready);
  EXPECT_EQ(job.keeper.due(), kBegin + seconds(20));
  job.pass(milliseconds(19999));
  EXPECT_EQ(job.acts(), Texts());
  job.pass(milliseconds(1));
  EXPECT_EQ(job.acts(), (Texts{"0: next 1 (0 of 2)", "1: next 1 (1 of 2)"}));
}

TEST(Keeper, PassesOnWhereRank0Listens) {
  Job job(limits_of(3, 1, 3), 3);
  job.say_all({0, 1, 2}, Topic::ready);
  static_cast<void>(job.acts());
  job.say(1, Topic::entry, 1, "not of rank 0");
  job.say(0, Topic::entry, 2, "of another generation");
  EXPECT_EQ(job.acts(), Texts());
  job.say(0, Topic::entry, 1, "here");
  EXPECT_EQ(job.acts(), (Texts{"1: entry 1 here", "2: entry 1 here"}));
}

TEST(Keeper, GoesOnWithoutTheDeadWhenTheOthersAreReady) {
  Job job(limits_of(3, 1, 3), 3);
  job.run({0, 1, 2});
  job.die(0);
  EXPECT_EQ(job.acts(), (Texts{"1: change 1, rank 0 of 3 (generation 1) has ended",
                               "2: change 1, rank 0 of 3 (generation 1) has ended"}));
  job.say(2, Topic::ready, 1);
  EXPECT_EQ(job.acts(), Texts());
  job.say(1, Topic::ready, 1);
  EXPECT_EQ(job.acts(), (Texts{"1: next 2 (0 of 2)", "2: next 2 (1 of 2)"}));
  EXPECT_EQ(job.keeper.describe(2), "rank 1 of 2 (generation 2)");
}

TEST(Keeper, TakesInWhoWantsInWhereThereIsAPlace) {
  Job job(limits_of(2, 1, 3), 2);
  job.run({0, 1});
  job.be_born(7);
  job.be_born(8);
  EXPECT_EQ(job.keeper.describe(7), "a process that was no rank yet");
  job.say(8, Topic::ready);
  EXPECT_EQ(job.acts(), (Texts{"0: change 1", "1: change 1"}));
  job.say_all({7, 1, 0}, Topic::ready, 0);  // of 1 and 0 a notice of no meaning: they are members
  EXPECT_EQ(job.acts(), Texts());
  job.say_all({1, 0}, Topic::ready, 1);
  EXPECT_EQ(job.acts(), (Texts{"0: next 2 (0 of 3)", "1: next 2 (1 of 3)", "8: next 2 (2 of 3)"}));
  job.die(1);  // the spare one takes its place
  static_cast<void>(job.acts());
  job.say_all({0, 8}, Topic::ready, 2);
  EXPECT_EQ(job.acts(), (Texts{"0: next 3 (0 of 3)", "8: next 3 (1 of 3)", "7: next 3 (2 of 3)"}));
}

TEST(Keeper, KillsWhoDoesNotAnswerAndWaitsForItsEnd) {
  Job job(limits_of(2, 1, 2), 2);
  job.run({0, 1});
  job.say(0, Topic::ready, 1);
  EXPECT_EQ(job.acts(), (Texts{"1: change 1, rank 0 of 2 (generation 1) has left"}));
  job.pass(milliseconds(2500));
  EXPECT_EQ(job.acts(), (Texts{"1: ask"}));
  job.pass(milliseconds(9999));
  EXPECT_EQ(job.acts(), Texts());
  job.pass(milliseconds(1));
  EXPECT_EQ(job.acts(), (Texts{"rank 1 of 2 (generation 1) has not answered for 10 s (KOLO_LATCH_TIMEOUT_S): it is "
                               "killed",
                               "kill 1"}));
  job.say(1, Topic::ready, 1);  // too late: it is being killed
  EXPECT_EQ(job.acts(), Texts());
  job.die(1);
  EXPECT_EQ(job.acts(), (Texts{"0: next 2 (0 of 1)"}));
}

TEST(Keeper, KillsNobodyWhoAnswersAndComputes) {
  JobLimits limits = limits_of(2, 1, 2);
  limits.patience = seconds(600);
  Job job(limits, 2);
  job.run({0, 1});
  job.say(0, Topic::ready, 1);
  static_cast<void>(job.acts());
  while (job.now < kBegin + seconds(600)) {
    ASSERT_LE(job.keeper.due(), kBegin + seconds(600));
    job.keeper.tick(job.now = job.keeper.due());
    if (job.now == kBegin + seconds(600)) break;
    ASSERT_EQ(job.acts(), (Texts{"1: ask"}));
    job.say(1, Topic::alive);
  }
  EXPECT_EQ(job.acts(), (Texts{"rank 1 of 2 (generation 1) answers, but has not come to the next generation within "
                               "600 s (KOLO_TIMEOUT_S): it is killed",
                               "kill 1"}));
}

TEST(Keeper, LeavesOutWhatTheSystemCannotEnd) {
  Job job(limits_of(2, 1, 2), 2);
  job.run({0, 1});
  job.say(0, Topic::ready, 1);
  job.pass(seconds(3));
  job.pass(seconds(10));
  static_cast<void>(job.acts());
  job.pass(seconds(10));
  EXPECT_EQ(job.acts(), (Texts{"rank 1 of 2 (generation 1) is left out: it was killed, and the system has not ended it",
                               "0: next 2 (0 of 1)"}));
}

TEST(Keeper, LeavesOutWhoseConnectionHasEnded) {
  Job job(limits_of(2, 1, 2), 2);
  job.run({0, 1});
  job.keeper.silent(1, job.now);
  EXPECT_EQ(job.keeper.due(), kBegin + seconds(10));
  job.pass(seconds(10));
  EXPECT_EQ(job.acts(), (Texts{"rank 1 of 2 (generation 1) is left out: it runs, but its connection has ended",
                               "0: change 1, rank 1 of 2 (generation 1) is left out"}));
}

TEST(Keeper, GivesUpWhenNobodyCanCome) {
  Job job(limits_of(3, 3, 3), 3);
  job.run({0, 1, 2});
  job.die(1);
  static_cast<void>(job.acts());
  job.say_all({0, 2}, Topic::ready, 1);
  const std::string why = "the job has 2 processes, and needs at least 3 (--min-np): no other can come";
  EXPECT_EQ(job.acts(), (Texts{why, "0: farewell, " + why, "2: farewell, " + why}));
  EXPECT_TRUE(job.keeper.gave_up());
}

TEST(Keeper, DoesNotGiveUpWhileTheOneThatIsGoneMayBeStartedAgain) {
  JobLimits limits = limits_of(2, 2, 2);
  limits.respawns = kNoLimit;
  Job job(limits, 2);
  job.run({0, 1});
  job.say(1, Topic::ready, 1);
  static_cast<void>(job.acts());
  job.keeper.silent(1, job.now);  // killed while it waits, and not reaped yet
  job.say(0, Topic::ready, 1);
  EXPECT_EQ(job.acts(), Texts());
  job.die(1);
  EXPECT_EQ(job.acts(), Texts{"spawn in slot 1"});
  job.keeper.born(2, 1, 0, job.now);
  job.keeper.silent(2, job.now);  // killed while it builds its model
  EXPECT_EQ(job.acts(), Texts());
  job.die(2);
  EXPECT_TRUE(job.keeper.gave_up());
}

TEST(Keeper, GivesUpWhenNobodyComesInTime) {
  JobLimits limits = limits_of(2, 2, 2);
  limits.wait = seconds(20);
  limits.respawns = kNoLimit;
  Job job(limits, 2);
  job.run({0, 1});
  job.die(1);
  EXPECT_EQ(job.acts(), (Texts{"spawn in slot 1", "0: change 1, rank 1 of 2 (generation 1) has ended"}));
  job.be_born(2);
  job.say(0, Topic::ready, 1);
  job.pass(seconds(20));
  const std::string why = "the job has 1 process, and needs at least 2 (--min-np): no other has come within 20 s "
                          "(--wait)";
  EXPECT_EQ(job.acts(), (Texts{why, "0: farewell, " + why}));
  EXPECT_EQ(job.keeper.due(), base::Time::max());
  job.say(2, Topic::ready);
  EXPECT_EQ(job.acts(), (Texts{"2: farewell, " + why}));
}

TEST(Keeper, RespawnsUntilTwoInARowHaveDiedEarly) {
  JobLimits limits = limits_of(1, 1, 2);
  limits.respawns = kNoLimit;
  Job job(limits, 1);
  job.run({0});
  job.keeper.born(10, 5, 0, job.now);
  std::uint64_t generation = 1;
  for (const Process process : {10U, 11U, 12U}) {  // early, late, early
    job.keeper.heard(process, {Topic::ready, 0, 0, 0, {}}, job.now);
    job.say(0, Topic::ready, generation++);
    if (process == 11U) job.pass(seconds(10));
    static_cast<void>(job.acts());
    job.keeper.died(process, false, job.now);
    const std::string number = std::to_string(generation);
    EXPECT_EQ(job.acts(), (Texts{"spawn in slot 5",
                                 "0: change " + number + ", rank 1 of 2 (generation " + number + ") has ended"}));
    job.keeper.born(process + 1, 5, 0, job.now);
  }
  job.keeper.died(13, false, job.now);
  EXPECT_EQ(job.acts(), (Texts{"slot 5 stays empty: two of its processes in a row have ended within 10 s of being "
                               "taken in, or before"}));
}

TEST(Keeper, RespawnsNoMoreOftenThanItMay) {
  JobLimits limits = limits_of(3, 1, 3);
  limits.respawns = 1;
  Job job(limits, 3);
  job.run({0, 1, 2});
  job.die(2);
  EXPECT_EQ(job.acts().front(), "spawn in slot 2");
  job.die(1);
  EXPECT_EQ(job.acts(),
            (Texts{"slot 1 stays empty: 1 process has been started again, and no more may be (--restarts)"}));
}

TEST(Keeper, TellsThoseThatStartThatOneIsGone) {
  Job job(limits_of(3, 1, 4), 4);
  job.say_all({0, 1, 2}, Topic::ready);
  job.say(0, Topic::started, 1);
  job.say(3, Topic::ready);
  static_cast<void>(job.acts());
  job.die(2);  // they have heard of the change, but not that their start cannot succeed
  EXPECT_EQ(job.acts(), (Texts{"1: change 1, rank 2 of 3 (generation 1) has ended"}));
}

TEST(Keeper, EndsInOrderWhenItIsToldTo) {
  Job job(limits_of(2, 1, 3), 3);
  job.run({0, 1});
  job.keeper.end("enough", job.now);
  EXPECT_EQ(job.acts(), (Texts{"0: change 1", "1: change 1"}));
  job.say(2, Topic::ready);
  job.say_all({0, 1}, Topic::ready, 1);
  EXPECT_EQ(job.acts(), (Texts{"2: farewell, enough", "0: farewell, enough", "1: farewell, enough"}));
  EXPECT_FALSE(job.keeper.gave_up());
}

TEST(Keeper, EndsWhenAllAreDone) {
  Job job(limits_of(2, 1, 2), 3);
  job.run({0, 1});
  job.say(2, Topic::ready);
  job.say(1, Topic::done, 1);
  EXPECT_EQ(job.acts(), Texts());
  job.say(0, Topic::done, 1);
  EXPECT_EQ(job.acts(),
            (Texts{"0: farewell, the work is done", "1: farewell, the work is done", "2: farewell, the work is done"}));
  EXPECT_FALSE(job.keeper.gave_up());
}

TEST(Keeper, AsksTheOthersOnceOneIsDone) {
  Job job(limits_of(2, 1, 2), 2);
  job.run({0, 1});
  job.say(1, Topic::done, 1);
  job.pass(milliseconds(2500));
  EXPECT_EQ(job.acts(), (Texts{"0: ask", "1: ask"}));
}

TEST(Keeper, EndsWhenAMemberEndsWell) {
  Job job(limits_of(2, 1, 2), 2);
  job.run({0, 1});
  job.die(1, true);
  EXPECT_EQ(job.acts(), (Texts{"0: change 1, rank 1 of 2 (generation 1) has ended"}));
  job.say(0, Topic::ready, 1);
  EXPECT_EQ(job.acts(), (Texts{"0: farewell, rank 1 of 2 (generation 1) has ended with exit status 0, so the work is "
                               "done"}));
}

TEST(Keeper, LetsGoWhoWantsOut) {
  Job job(limits_of(3, 1, 3), 3);
  job.run({0, 1, 2});
  job.say(0, Topic::leaving);
  EXPECT_EQ(job.acts(), (Texts{"0: change 1", "1: change 1", "2: change 1"}));
  job.say_all({0, 1, 2}, Topic::ready, 1);
  EXPECT_EQ(job.acts(), (Texts{"0: farewell, it wanted to leave", "1: next 2 (0 of 2)", "2: next 2 (1 of 2)"}));
  job.die(0, true);
  EXPECT_EQ(job.acts(), Texts());
}

TEST(Keeper, LosesAParentWithAllItsProcesses) {
  Keeper keeper(limits_of(3, 1, 3));
  for (const Process process : {0U, 1U, 2U}) {
    keeper.born(process, static_cast<Slot>(process), process == 0 ? 0 : 1, kBegin);
  }
  for (const Process process : {0U, 1U, 2U}) keeper.heard(process, {Topic::ready, 0, 0, 0, {}}, kBegin);
  keeper.heard(0, {Topic::ready, 1, 0, 0, {}}, kBegin);
  static_cast<void>(keeper.take());
  keeper.lost(1, kBegin);
  const std::vector<Act> acts = keeper.take();
  ASSERT_EQ(acts.size(), 1U);
  EXPECT_EQ(acts[0].notice, (Notice{Topic::next, 2, 0, 1, {}}));
}

}  // namespace
}  // namespace kolo::membership
