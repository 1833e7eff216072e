// SPDX-License-Identifier: Apache-2.0
//
// Sentences of negotiation, word for word.
#include <string>

#include <gtest/gtest.h>

#include "control/sentences.hpp"

namespace kolo::control {
namespace {

const std::string kPair = "group \"pair\" of ranks 1 and 3";

TEST(Sentences, TimesHaveThreeDigitsOrWholeSeconds) {
  EXPECT_EQ(spell_seconds(0.001), "0.001 s");
  EXPECT_EQ(spell_seconds(0.7001), "0.7 s");
  EXPECT_EQ(spell_seconds(1.501), "1.5 s");
  EXPECT_EQ(spell_seconds(60.002), "60 s");
  EXPECT_EQ(spell_seconds(99.97), "100 s");
  EXPECT_EQ(spell_seconds(600.4), "600 s");
  EXPECT_EQ(spell_seconds(86400.6), "86401 s");
}

TEST(Sentences, AWarningNamesTheGroup) {
  const std::string rest =
      " has waited for 60 s: rank 3 has not submitted it. Either this rank is slow, or the program "
      "does not submit it there.";
  const Stalled named{{1, "x", 1}, 60.004, {3}};
  EXPECT_EQ(stalled("", named), "tensor \"x\"" + rest);
  EXPECT_EQ(stalled(kPair, named), "tensor \"x\" of " + kPair + rest);
  EXPECT_EQ(stalled(kPair, Stalled{{1, kSequence, 17}, 60, {3}, core::CollectiveKind::barrier}),
            "unnamed call number 17 (barrier) of " + kPair + rest);
  EXPECT_EQ(stalled("", Stalled{{1, kSequence, 4}, 60, {3}, core::CollectiveKind::reduce_scatter}),
            "unnamed call number 4 (reduce_scatter)" + rest);
  EXPECT_EQ(stalled(kPair, Stalled{{1, "x", 1}, 0.7001, {1, 3}}),
            "tensor \"x\" of " + kPair +
                " has waited for 0.7 s: ranks 1 and 3 have not submitted it. Either these ranks are slow, or the "
                "program does not submit it there.");
}

TEST(Sentences, AWarningOfAGroupThatIsNotMade) {
  const std::string rest =
      " has waited for 60 s: rank 1 has not called Group::of or split for it. Either this rank is slow, or the program "
      "does not ask for a group of the same ranks and name there.";
  EXPECT_EQ(stalled("", Stalled{{0, "", 1, {0, 1, 2}}, 60, {1}}), "the group of ranks 0-2" + rest);
  EXPECT_EQ(stalled("", Stalled{{0, "a", 1, {0, 1, 2}}, 60, {1}}), "group \"a\" of ranks 0-2" + rest);
}

TEST(Sentences, AWarningOfAJoin) {
  EXPECT_EQ(stalled(kPair, Stalled{{1, "", 1, {}, true}, 60, {3}}),
            "the join of " + kPair +
                " has waited for 60 s: rank 3 has not joined, and nothing runs. Either this rank is slow, or the "
                "program does not join there.");
}

TEST(Sentences, ADisagreementNamesTheGroupBehindTheCollective) {
  core::Signature sum;
  sum.kind = core::CollectiveKind::allreduce;
  sum.tensors = {{DType::float32, Shape{2}}};
  core::Signature other = sum;
  other.tensors[0].dtype = DType::int32;
  core::Signature barrier;
  barrier.kind = core::CollectiveKind::barrier;
  const std::string end = ". The operation did not run; submit the same on every rank.";
  EXPECT_EQ(disagreement("tensor \"x\"", kPair, {{sum, {1}}, {other, {3}}}),
            "tensor \"x\" of allreduce in " + kPair +
                ": ranks disagree about dtype: float32 on rank 1; int32 on rank 3" + end);
  EXPECT_EQ(disagreement("unnamed call number 2", kPair, {{sum, {1}}, {barrier, {3}}}),
            "unnamed call number 2 in " + kPair +
                ": ranks disagree about the kind of collective: allreduce on rank 1; barrier on rank 3" + end);
}

TEST(Sentences, WhatNobodyAnswersForIsAGroupThatIsNotMade) {
  const std::string silence = silence_of({0});
  const std::string end =
      " within 602 s: rank 0 does not answer; its process is stopped, or kept from running. The contents of the "
      "buffers in flight are undefined.";
  EXPECT_EQ(unanswered("the group of ranks 1 and 3", true, 602, silence),
            "the group of ranks 1 and 3 has not been made" + end);
  EXPECT_EQ(unanswered("tensor \"x\"", false, 602, silence), "tensor \"x\" has not completed" + end);
}

TEST(Sentences, ADeadlineOfAGroupSaysThatAllHaveCalledForIt) {
  Wait wait;
  wait.waited_s = 600;
  wait.group = true;
  wait.answers.resize(1);
  wait.answers[0].submitted = true;
  EXPECT_EQ(deadline_passed("the group of ranks 0-2", wait, {}).sentence,
            "the group of ranks 0-2 has not been made within 600 s: every rank has called Group::of or split for it. "
            "The contents of the buffers in flight are undefined.");
}

TEST(Sentences, ADeadlineSaysWhichOtherGroupARankAsksFor) {
  Wait wait;
  wait.waited_s = 1.501;
  wait.group = true;
  Answer rank_0;
  rank_0.rank = 0;
  rank_0.submitted = true;
  Answer rank_1;
  rank_1.rank = 1;
  rank_1.wait = Request{0, "", 1, {0, 1}};
  wait.answers = {rank_0, rank_1};
  const auto no_group = [](core::SetId) { return std::string(); };
  const std::string undefined = " The contents of the buffers in flight are undefined.";
  EXPECT_EQ(deadline_passed("the group of ranks 0-2", wait, no_group).sentence,
            "the group of ranks 0-2 has not been made within 1.5 s: rank 1 has not called Group::of or split for it; "
            "rank 1 waits for the group of ranks 0 and 1; all ranks of a group must give the same list and the same "
            "name." +
                undefined);
  wait.answers[1].wait = Request{0, "x", 1, {}};
  EXPECT_EQ(deadline_passed("the group of ranks 0-2", wait, no_group).sentence,
            "the group of ranks 0-2 has not been made within 1.5 s: rank 1 has not called Group::of or split for it; "
            "rank 1 waits for tensor \"x\"." +
                undefined);
}

}  // namespace
}  // namespace kolo::control
