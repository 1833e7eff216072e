// SPDX-License-Identifier: Apache-2.0
//
// The judgement over recordings that are written here, one a verdict. (Real jobs that are killed:
// scripts/test chaos --why.)
#include "why/why.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "base/hash.hpp"
#include "core/collectives.hpp"

namespace kolo::why {
namespace {

using recorder::Kind;
using recorder::Record;
using recorder::State;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr auto kAllreduce = static_cast<std::uint8_t>(core::CollectiveKind::allreduce);

std::string all_of(const JobReport& judgement) {
  std::string text;
  for (const std::string& sentence : judgement.sentences) text += sentence + "\n";
  return text;
}

/// One rank's recording, event by event.
class Rank {
 public:
  Rank(int rank, int size, State state = State::running, Life life = Life::runs) {
    observed_.life = life;
    recorder::Recording& its = observed_.recording;
    its.job = "job";
    its.host = "host";
    its.boot = "boot";
    its.rank = rank;
    its.size = size;
    its.process = {static_cast<std::uint64_t>(100 + rank), 1};
    its.state = state;
    add(Kind::started);
  }
  Rank& at(std::uint64_t seconds) {
    time_ = seconds * kSecond;
    return *this;
  }
  Rank& submits(const std::string& name, std::uint32_t round = 1) {
    return add(Kind::submitted, id(name), round, 4, kAllreduce);
  }
  Rank& asks(const std::string& group, std::uint8_t kind) { return add(Kind::submitted, id(group), 1, 0, kind); }
  Rank& starts(const std::string& step) { return add(Kind::start_step, id(step)); }
  Rank& calls(std::uint32_t number) { return add(Kind::called, 0, number, 4, kAllreduce); }
  Rank& begins(const std::string& name, std::uint32_t batch) { return add(Kind::batch_begun, id(name), batch, 1); }
  Rank& ends(std::uint32_t batch) { return add(Kind::batch_ended, 0, batch); }
  Rank& fails(ErrorCode code, const std::string& sentence) {
    return add(Kind::fault, 0, 0, 0, static_cast<std::uint8_t>(code)).add(Kind::sentence, id(sentence));
  }
  Rank& fails(const std::string& name, ErrorCode code, const std::string& sentence) {
    return add(Kind::failed, id(name), 0, 0, static_cast<std::uint8_t>(code)).add(Kind::sentence, id(sentence));
  }
  Rank& reports(int rank, const std::string& sentence) {
    return add(Kind::reported, 0, 0, static_cast<std::uint32_t>(rank),
               static_cast<std::uint8_t>(ErrorCode::user_exception))
        .add(Kind::sentence, id(sentence));
  }
  Rank& hears(Kind kind, int rank) { return add(kind, 0, 0, static_cast<std::uint32_t>(rank)); }
  Rank& leaves() { return add(Kind::leaving); }
  [[nodiscard]] operator Observed() const { return observed_; }  // NOLINT(google-explicit-constructor)
  recorder::Recording& recording() { return observed_.recording; }

 private:
  std::uint64_t id(const std::string& text) {
    const std::uint64_t hash = base::hash_string(text);
    observed_.recording.texts.emplace(hash, text);
    return hash;
  }
  Rank& add(Kind kind, std::uint64_t id = 0, std::uint32_t round = 0, std::uint32_t amount = 0,
            std::uint8_t detail = 0) {
    observed_.recording.events.push_back({time_, id, round, amount, 0, kind, detail});
    return *this;
  }

  Observed observed_;
  std::uint64_t time_ = kSecond;
};

JobReport judge_at(std::int64_t seconds, const std::vector<Observed>& ranks) {
  return judge(ranks, seconds * static_cast<std::int64_t>(kSecond));
}

TEST(Why, NothingWaitsForLong) {
  const JobReport found = judge_at(
      9, {Rank(0, 2).at(8).submits("w").begins("w", 1).ends(1), Rank(1, 2).at(8).submits("w").begins("w", 1).ends(1)});
  EXPECT_EQ(found.verdict, "healthy");
  EXPECT_TRUE(found.suspects.empty());
  EXPECT_EQ(all_of(found), "Nothing waits for long: no rank holds the others up.\n");
}

TEST(Why, ARankWasKilledInTheMiddleOfABatch) {
  const JobReport found = judge_at(30, {Rank(0, 2, State::faulted, Life::gone)
                                            .at(8)
                                            .submits("w")
                                            .begins("w", 1)
                                            .at(9)
                                            .hears(Kind::death_seen, 1)
                                            .hears(Kind::blamed, 1)
                                            .fails(ErrorCode::rank_lost, "rank 1 was lost"),
                                        Rank(1, 2, State::running, Life::gone).at(8).submits("w").begins("w", 1)});
  EXPECT_EQ(found.verdict, "killed");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_EQ(found.tensors, std::vector<std::string>{"w"});
  EXPECT_EQ(
      all_of(found),
      "Rank 0 was told at 8.000 s: rank 1 was lost\n"
      "Rank 1 was killed: its process (101 on host) has ended without shutdown and without an error of Kolo's, as by "
      "a signal; it last began the batch of \"w\" at 7.000 s.\n"
      "In flight: the batch of \"w\", which ranks 0 and 1 run.\n");
  EXPECT_EQ(found.ranks[0].state, "has ended after an error");
  EXPECT_EQ(found.ranks[1].state, "was killed");
}

TEST(Why, AllWereKilledAndSomeHadSeenTheFirst) {
  const JobReport found =
      judge_at(30, {Rank(0, 3, State::running, Life::gone).at(9).hears(Kind::death_seen, 2),
                    Rank(1, 3, State::running, Life::gone).at(9), Rank(2, 3, State::running, Life::gone).at(8)});
  EXPECT_EQ(found.verdict, "killed");
  EXPECT_EQ(found.suspects, std::vector<int>{2});
}

TEST(Why, ARankIsStopped) {
  const JobReport found = judge_at(
      30, {Rank(0, 2).at(8).submits("w").begins("w", 1), Rank(1, 2, State::running, Life::stopped).at(8).submits("w")});
  EXPECT_EQ(found.verdict, "stopped");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
}

TEST(Why, ARankNeverSubmits) {
  const JobReport found =
      judge_at(30, {Rank(0, 3).at(5).submits("w", 2), Rank(1, 3).at(4).submits("w", 1).begins("w", 1).ends(1),
                    Rank(2, 3).at(6).submits("w", 2)});
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_EQ(
      all_of(found),
      "Rank 1 has not submitted allreduce of \"w\", for which ranks 0 and 2 wait since 4.000 s.\n"
      "Rank 1: it last finished a batch at 3.000 s, and no thread of it waits inside Kolo: it computes, or hangs in "
      "the program.\n");
}

TEST(Why, ARankMakesFewerUnnamedCalls) {
  Rank late(1, 2);
  late.recording().last_fast[0] = 6;
  const JobReport found = judge_at(30, {Rank(0, 2).at(5).calls(7), late});
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_TRUE(found.tensors.empty());
  late.recording().last_fast[0] = 7;
  EXPECT_EQ(judge_at(30, {Rank(0, 2).at(5).calls(7), late}).verdict, "unclear");
}

TEST(Why, RanksMakeTheirCallsInDifferentOrders) {
  const JobReport found = judge_at(30, {Rank(0, 2).at(5).submits("a"), Rank(1, 2).at(5).submits("b")});
  EXPECT_EQ(found.verdict, "order");
  EXPECT_EQ(found.suspects, (std::vector<int>{0, 1}));
  EXPECT_EQ(found.tensors, (std::vector<std::string>{"a", "b"}));
}

TEST(Why, AGroupIsNotMade) {
  constexpr auto kMakes = static_cast<std::uint8_t>(core::CollectiveKind::add_process_set);
  const JobReport found =
      judge_at(30, {Rank(0, 8).at(5).asks("group \"of ranks\" of ranks 0-2 and 5", kMakes), Rank(1, 8),
                    Rank(2, 8).at(6).asks("group \"of ranks\" of ranks 0-2 and 5", kMakes), Rank(3, 8), Rank(4, 8),
                    Rank(5, 8), Rank(6, 8), Rank(7, 8)});
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, (std::vector<int>{1, 5}));
  EXPECT_EQ(found.sentences.front(),
            "Ranks 1 and 5 have not submitted the making of group \"of ranks\" of ranks 0-2 and "
            "5, for which ranks 0 and 2 wait since 4.000 s.");
}

TEST(Why, OneLateRankKeepsTwoOthersFromEachOther) {
  // Rank 1 waits for rank 2 in "b", and therefore does not come to "a".
  const JobReport found =
      judge_at(30, {Rank(0, 3).at(5).submits("a"), Rank(1, 3).at(5).submits("b"), Rank(2, 3).at(4)});
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, std::vector<int>{2});
}

TEST(Why, ARankHasNotComeToABatch) {
  const JobReport found =
      judge_at(30, {Rank(0, 2).at(5).submits("w").begins("w", 4), Rank(1, 2).at(4).submits("w").at(5)});
  // It has submitted "w", and so waits for it itself; nobody lacks it.
  EXPECT_EQ(found.verdict, "unclear");
  const JobReport behind =
      judge_at(30, {Rank(0, 2).at(5).submits("w").begins("w", 4), Rank(1, 2).begins("v", 3).ends(3)});
  EXPECT_EQ(behind.verdict, "slow");
  EXPECT_EQ(behind.suspects, std::vector<int>{1});
}

TEST(Why, ARankGaveUpByItself) {
  const JobReport found = judge_at(30, {Rank(0, 2, State::faulted, Life::gone)
                                            .at(9)
                                            .hears(Kind::blamed, 1)
                                            .fails(ErrorCode::user_exception, "rank 1 threw"),
                                        Rank(1, 2, State::faulted, Life::gone)
                                            .at(8)
                                            .reports(1, "an exception")
                                            .fails(ErrorCode::user_exception, "rank 1 threw")});
  EXPECT_EQ(found.verdict, "gave up");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
}

// Nobody needed it as far as the log knows, but a message that expired may have waited for it.
TEST(Why, ARankLeftAndAMessageExpired) {
  const JobReport found =
      judge_at(30, {Rank(0, 3, State::closed, Life::gone)
                        .at(5)
                        .submits("w")
                        .at(9)
                        .hears(Kind::rank_left, 2)
                        .at(20)
                        .fails("w", ErrorCode::expired,
                               "recv of up to 1 element of int32 from rank 1 with any tag: no message that fits has "
                               "come within 15 s; meanwhile rank 2 has left the job")
                        .leaves(),
                    Rank(2, 3, State::closed, Life::gone).at(8).leaves()});
  EXPECT_EQ(found.verdict, "left");
  EXPECT_EQ(found.suspects, std::vector<int>{2});
}

TEST(Why, ARankLeftWhileOthersNeededIt) {
  const JobReport found = judge_at(30, {Rank(0, 2, State::closed, Life::gone)
                                            .at(5)
                                            .submits("w")
                                            .at(9)
                                            .hears(Kind::rank_left, 1)
                                            .fails("w", ErrorCode::rank_lost, "rank 1 has left")
                                            .leaves(),
                                        Rank(1, 2, State::closed, Life::gone).at(8).leaves()});
  EXPECT_EQ(found.verdict, "left");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
}

/// Rank 0's file is gone: it left in order, and needed nobody. Rank 2 sees the end of rank 1's process, and has not
/// read of its shutdown.
TEST(Why, TheEndOfOneThatLeftBecauseOfAnotherIsNoCause) {
  const auto rank = [](int number) {
    return Rank(number, 3, State::closed, Life::gone)
        .at(5)
        .submits("w")
        .at(8)
        .hears(Kind::rank_left, 0)
        .fails("w", ErrorCode::rank_lost, "rank 0 has shut down and will not submit tensor \"w\".")
        .begins("v", 1)
        .at(9)
        .ends(1);
  };
  const JobReport found =
      judge_at(30, {rank(1).at(10).leaves(), rank(2).at(11).leaves().at(12).hears(Kind::death_seen, 1)});
  EXPECT_EQ(found.verdict, "left") << all_of(found);
  EXPECT_EQ(found.suspects, std::vector<int>{0}) << all_of(found);
}

/// Rank 1 leaves, which ends rank 2; the job's error names rank 1. It is no lost rank, whether its file is gone, or
/// says that it waited in its shutdown until it was told.
TEST(Why, ARankThatLeftIsNotLostWhereItsLeavingEndedAnother) {
  const std::string told = "rank 1 has left the job, and because of that rank 2 was lost: its process has ended";
  const auto rank = [&told](int number) {
    return Rank(number, 3, State::faulted, Life::gone)
        .at(9)
        .hears(Kind::rank_left, 1)
        .at(10)
        .hears(Kind::blamed, 1)
        .fails(ErrorCode::rank_lost, told);
  };
  const Rank middle = Rank(2, 3, State::running, Life::gone)
                          .at(9)
                          .hears(Kind::rank_left, 1)
                          .fails("w", ErrorCode::rank_lost, "rank 1 has left the job");
  for (const std::vector<Observed>& ranks :
       {std::vector<Observed>{rank(0), middle},
        std::vector<Observed>{
            rank(0), Rank(1, 3, State::faulted, Life::gone).at(8).leaves().at(10).fails(ErrorCode::rank_lost, told),
            middle}}) {
    const JobReport found = judge_at(30, ranks);
    EXPECT_EQ(found.verdict, "left") << all_of(found);
    EXPECT_EQ(found.suspects, std::vector<int>{1}) << all_of(found);
  }
}

TEST(Why, ThoseThatAnErrorEndedAreNoCause) {
  // Rank 1 leaves; the others' operations fail, and nobody catches that.
  const auto uncaught = [](int rank) {
    return Rank(rank, 3, State::running, Life::gone)
        .at(5)
        .submits("w")
        .at(9)
        .hears(Kind::rank_left, 1)
        .fails("w", ErrorCode::rank_lost, "rank 1 has left");
  };
  const JobReport found = judge_at(30, {uncaught(0),
                                        Rank(1, 3, State::faulted, Life::gone)
                                            .at(8)
                                            .leaves()
                                            .at(10)
                                            .hears(Kind::death_seen, 0)
                                            .fails(ErrorCode::rank_lost, "rank 0 was lost"),
                                        uncaught(2)});
  EXPECT_EQ(found.verdict, "left");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_EQ(found.ranks[0].state, "has ended after an error");
}

TEST(Why, AHostIsGoneWithItsFiles) {
  const auto survivor = [](int rank) {
    return Rank(rank, 4, State::faulted, Life::gone)
        .at(8)
        .submits("w")
        .begins("w", 1)
        .at(9)
        .hears(Kind::blamed, 2)
        .fails(ErrorCode::rank_lost, "rank 2 was lost");
  };
  const JobReport found = judge_at(30, {survivor(0), survivor(1)});
  EXPECT_EQ(found.verdict, "lost");
  EXPECT_EQ(found.suspects, std::vector<int>{2});
  EXPECT_EQ(found.sentences.front(), "There is no file of ranks 2 and 3: their machine, or their directory, is another "
                                     "one, or they left in order, or ended before they had one.");
  EXPECT_EQ(found.ranks[3].state, "no file");
}

TEST(Why, RanksThatEndInTheStartFollowOneThatHasNoFile) {
  const auto follower = [](int rank) { return Rank(rank, 3, State::starting, Life::gone).at(2).starts("connecting"); };
  JobReport found = judge_at(9, {follower(1), follower(2)});
  EXPECT_EQ(found.verdict, "unclear");
  EXPECT_TRUE(found.suspects.empty());
  EXPECT_EQ(found.sentences.front().find("There is no file of rank 0"), 0U);
  EXPECT_EQ(found.sentences[1],
            "Ranks 1 and 2 ended without a word in the start, perhaps because of a rank that has no file.");

  // One of them has seen the first end.
  found = judge_at(9, {follower(1).hears(Kind::death_seen, 0), follower(2)});
  EXPECT_EQ(found.verdict, "lost");
  EXPECT_EQ(found.suspects, std::vector<int>{0});

  // All files are here: the ranks that ended are the cause.
  found = judge_at(9, {follower(0), Rank(1, 3), Rank(2, 3)});
  EXPECT_EQ(found.verdict, "killed");
  EXPECT_EQ(found.suspects, std::vector<int>{0});
}

TEST(Why, TheSentenceOfTheFirstErrorNamesARank) {
  const auto told = [](std::uint64_t at, ErrorCode code, const std::string& sentence) {
    return judge_at(30,
                    {Rank(1, 3, State::faulted, Life::gone).at(at).fails(code, sentence),
                     Rank(2, 3, State::faulted, Life::gone).at(10).fails(ErrorCode::rank_lost, "rank 1 was lost: x")});
  };
  EXPECT_EQ(told(9, ErrorCode::rank_lost, "rank 0 was lost: its link is down").suspects, std::vector<int>{0});
  EXPECT_EQ(told(11, ErrorCode::rank_lost, "rank 0 was lost: its link is down").suspects, std::vector<int>{1});
  EXPECT_EQ(
      told(9, ErrorCode::timeout, "tensor \"rank 2 \" has not ...: rank 0, which coordinates the job, does not answer")
          .suspects,
      std::vector<int>{0});
  EXPECT_EQ(
      told(9, ErrorCode::timeout, "tensor \"w\" has not completed within 5 s: rank 0 has not submitted it").suspects,
      std::vector<int>{0});
  EXPECT_EQ(told(9, ErrorCode::transport, "there is no memory left").suspects, std::vector<int>{1});
}

TEST(Why, ADeadlineNamesTheRankThatNeverCame) {
  const auto told = [](int rank) {
    return Rank(rank, 3, State::faulted, Life::gone)
        .at(5)
        .submits("w")
        .at(15)
        .hears(Kind::blamed, 1)
        .fails(ErrorCode::timeout, "rank 1 has not submitted it");
  };
  const JobReport found = judge_at(30, {told(0),
                                        Rank(1, 3, State::faulted, Life::gone)
                                            .at(15)
                                            .hears(Kind::blamed, 1)
                                            .fails(ErrorCode::timeout, "rank 1 has not submitted it"),
                                        told(2)});
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_EQ(found.tensors, std::vector<std::string>{"w"});
}

TEST(Why, RanksDisagreed) {
  const auto rank = [](int number) {
    return Rank(number, 2).at(5).submits("w").fails("w", ErrorCode::mismatch, "ranks disagree about shape");
  };
  const JobReport found = judge_at(30, {rank(0), rank(1)});
  EXPECT_EQ(found.verdict, "mismatch");
  EXPECT_TRUE(found.suspects.empty());
  EXPECT_EQ(all_of(found), "Ranks disagreed at 4.000 s: ranks disagree about shape\n");
}

TEST(Why, ClocksOfOtherMachinesAreShifted) {
  Rank there(1, 2);
  there.recording().boot = "another";
  there.recording().host = "there";
  there.recording().wall_ns = 0;
  there.recording().monotonic_ns = -static_cast<std::int64_t>(100 * kSecond);  // its clock is 100 s behind
  there.recording().events.clear();
  for (Record record : {Record{}}) {
    record.kind = Kind::submitted;
    record.time = 5 * kSecond;
    record.id = 1;
    there.recording().events.push_back(record);
  }
  Rank here(0, 2);
  here.recording().wall_ns = 0;
  here.recording().monotonic_ns = 0;
  const JobReport found = judge_at(105, {here.at(104), there});
  EXPECT_EQ(found.ranks[1].last_s, 104.0);
  EXPECT_NE(all_of(found).find("Times of there are placed by the machines' clocks of the day"), std::string::npos);
}

TEST(Why, AClockThatIsWrongByMoreThanAnUptimeMovesNothing) {
  // The other machine's clock of the day is ten years behind; both began to record in one moment.
  const auto nanoseconds = [](std::uint64_t seconds) { return static_cast<std::int64_t>(seconds * kSecond); };
  Rank there(1, 2);
  there.recording().boot = "another";
  there.recording().host = "there";
  there.recording().wall_ns = nanoseconds(1'000'000'000);
  there.recording().monotonic_ns = nanoseconds(50);
  Rank here(0, 2);
  here.recording().wall_ns = nanoseconds(1'315'360'000);
  here.recording().monotonic_ns = nanoseconds(1);
  const JobReport found = judge_at(105, {here.at(4).submits("w"), there.at(52)});
  EXPECT_DOUBLE_EQ(found.ranks[0].last_s, 52.0) << "the other's first event was at second 1 of its clock, 49 before";
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_EQ(found.sentences.front(),
            "The clock of the day of there differs by more than a minute; times there are placed by the start of the "
            "job.");
}

TEST(Why, TimesBeforeTheFirstClockAreNoError) {
  // Within a minute by the clock of the day, but earlier than this machine's boot.
  Rank there(1, 2);
  there.recording().boot = "another";
  there.recording().monotonic_ns = static_cast<std::int64_t>(1000 * kSecond);
  Rank here(0, 2);
  here.recording().monotonic_ns = 0;
  const JobReport found = judge_at(5, {here.at(2).submits("w"), there});
  EXPECT_DOUBLE_EQ(found.ranks[0].last_s, 1001.0);
  EXPECT_EQ(found.ranks[1].last_s, 0.0);
}

TEST(Why, OneSentenceIsOneLineWhateverARecorderSays) {
  Rank evil(0, 2, State::faulted, Life::gone);
  evil.recording().host = "host\n- Rank 1 was killed";
  const JobReport found = judge_at(
      30,
      {evil.at(5).starts("step\x1b[2J").submits("w\n").fails(ErrorCode::transport, "is \"full\"\r- Rank 1 was killed"),
       Rank(1, 2)});
  ASSERT_GE(found.sentences.size(), 2U);
  EXPECT_EQ(found.sentences[0], "Rank 0 was told at 4.000 s: is \"full\"\\r- Rank 1 was killed");
  EXPECT_EQ(found.ranks[0].host, "host\\n- Rank 1 was killed");
  EXPECT_EQ(found.ranks[0].last, "it was in the step \"step\\x1b[2J\" of the start");
  EXPECT_EQ(found.tensors, std::vector<std::string>{"w\n"}) << "as the program gave it";
}

TEST(Why, AJobThatHungAndWasEndedSaysWhomItWaitedFor) {
  const auto waits = [](int rank) { return Rank(rank, 3, State::running, Life::gone).at(5).submits("w", 2); };
  const Rank late = Rank(1, 3, State::running, Life::gone).at(4).submits("w", 1).begins("w", 1).ends(1);
  const std::string sentence =
      "Rank 1 has not submitted allreduce of \"w\", for which ranks 0 and 2 wait since 4.000 s.\n";
  const JobReport found = judge_at(30, {waits(0), late, waits(2)});
  EXPECT_EQ(found.verdict, "killed");
  EXPECT_EQ(found.suspects, (std::vector<int>{0, 1, 2}));
  EXPECT_NE(all_of(found).find(sentence), std::string::npos) << all_of(found);
  EXPECT_EQ(found.tensors, std::vector<std::string>{"w"});

  // The log has called it late, so the job did not just happen to be there.
  const JobReport hung = judge_at(30, {waits(0).hears(Kind::late, 1), late, waits(2)});
  EXPECT_EQ(hung.verdict, "late");
  EXPECT_EQ(hung.suspects, std::vector<int>{1});
  EXPECT_EQ(all_of(hung).find("Ranks 0-2 were ended together, as by a signal.\n" + sentence), 0U) << all_of(hung);
}

TEST(Why, AProcessThatCannotBeSeenIsNotKilled) {
  const auto rank = [](int number) { return Rank(number, 2, State::running, Life::unknown).at(5); };
  const JobReport found = judge_at(30, {rank(0).submits("w"), rank(1)});
  EXPECT_EQ(found.verdict, "late") << "what has been open for 25 s waits, wherever the processes are";
  EXPECT_EQ(found.suspects, std::vector<int>{1});
  EXPECT_EQ(found.sentences[0],
            "The processes of ranks 0 and 1 cannot be seen from here: another machine or container, or this one before "
            "it was started anew.");
  EXPECT_EQ(found.ranks[0].state, "cannot be seen from here");
  EXPECT_EQ(judge_at(5, {rank(0).submits("w"), rank(1)}).verdict, "healthy");
}

TEST(Why, AGroupOfMoreThanAThousandIsNotMade) {
  constexpr auto kMakes = static_cast<std::uint8_t>(core::CollectiveKind::add_process_set);
  constexpr int kSize = 3000;
  std::string group = "group of ranks 0";
  for (int rank = 2; rank < kSize; rank += 2) group += " and " + std::to_string(rank);
  std::vector<Observed> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    Rank one(rank, kSize);
    if (rank % 2 == 0 && rank != 2998) one.at(5).asks(group, kMakes);
    ranks.push_back(one);
  }
  const JobReport found = judge_at(30, ranks);
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects, std::vector<int>{2998});
  EXPECT_LT(found.sentences.front().size(), 12000U);
}

TEST(Why, ManyRanksWithoutAFileTakeNoLongTime) {
  constexpr int kSize = 65536;
  Rank one(0, kSize);
  for (int i = 0; i < 8000; ++i) one.at(5).submits("w" + std::to_string(i));
  for (std::uint32_t i = 0; i < 8000; ++i) one.begins("v", i);
  const JobReport found = judge_at(30, {one});
  EXPECT_EQ(found.verdict, "late");
  EXPECT_EQ(found.suspects.size(), kSize - 1U);
}

TEST(Why, HowOftenEachRankWasTheLastIsCounted) {
  std::vector<Observed> ranks;
  for (int number = 0; number < 2; ++number) {
    Rank rank(number, 2);
    for (std::uint32_t batch = 1; batch <= 6; ++batch) {
      rank.at(8).submits("w").begins("w", batch).ends(batch);
      std::vector<Record>& events = rank.recording().events;
      events[events.size() - 2].last = static_cast<std::int16_t>(batch == 6 ? -1 : batch == 5 ? 0 : 1);
    }
    ranks.push_back(rank);
  }
  const JobReport found = judge_at(9, ranks);
  for (const RankReport& line : found.ranks) {
    EXPECT_EQ(line.batches, 5U);
    EXPECT_EQ(line.awaited_batches, line.rank == 1 ? 4U : 1U);
  }
}

TEST(Why, NoRecorderIsNoJudgement) { EXPECT_EQ(judge({}, 1).verdict, "unclear"); }

}  // namespace
}  // namespace kolo::why
