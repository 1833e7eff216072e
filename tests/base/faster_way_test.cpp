// SPDX-License-Identifier: Apache-2.0
#include "base/faster_way.hpp"

#include <gtest/gtest.h>

namespace kolo::base {
namespace {

using Way = FasterWay::Way;

/// What the two ways cost, and what was done.
struct Work {
  FasterWay ways;
  double first = 1;
  double second = 1;
  int done_first = 0;
  int done_second = 0;

  void repeat(int times) {
    done_first = done_second = 0;
    for (int i = 0; i < times; ++i) {
      const Way way = ways.next();
      ++(way == Way::first ? done_first : done_second);
      ways.note(way, way == Way::first ? first : second);
    }
  }
};

TEST(FasterWay, FindsTheFasterOneSoon) {
  Work work{FasterWay(Way::first), 2, 1};
  work.repeat(15);
  EXPECT_EQ(work.ways.next(), Way::second);
  work.repeat(1000);
  EXPECT_GT(work.done_second, 950);
}

TEST(FasterWay, StaysWithTheUsualOneWhereThatIsFaster) {
  for (const Way usual : {Way::first, Way::second}) {
    Work work{FasterWay(usual)};
    (usual == Way::first ? work.second : work.first) = 1.5;
    work.repeat(2000);
    const int others = usual == Way::first ? work.done_second : work.done_first;
    EXPECT_GE(others, 3) << "it is tried";
    EXPECT_LE(others, 6 * 8) << "seldom";
  }
}

TEST(FasterWay, TriesMoreSeldomWhatHasLostByHalf) {
  Work work{FasterWay(Way::first), 1, 5};
  work.repeat(2000);
  EXPECT_GE(work.done_second, 3);
  EXPECT_LE(work.done_second, 6 * 5);
}

TEST(FasterWay, DoesNotChangeForLittle) {
  Work work{FasterWay(Way::first), 1, 0.97};
  work.repeat(1000);
  EXPECT_GT(work.done_first, 950);
}

TEST(FasterWay, NoticesThatTheUsualOneHasSlowed) {
  Work work{FasterWay(Way::first), 1, 5};
  work.repeat(1500);
  EXPECT_EQ(work.ways.next(), Way::first);
  work.first = 20;
  work.repeat(300);  // 256 at least between two tries that lose by so much
  EXPECT_EQ(work.ways.next(), Way::second);
}

TEST(FasterWay, NoticesAtOnceThatTheFirstComparisonWasOfSomethingElse) {
  Work work{FasterWay(Way::first), 1, 1.5};
  work.repeat(15);
  work.first = 2;
  work.repeat(20);
  EXPECT_EQ(work.ways.next(), Way::second);
}

TEST(FasterWay, NoticesInTimeThatTheOtherOneHasBecomeFaster) {
  Work work{FasterWay(Way::first), 1, 5};
  work.repeat(1500);
  work.second = 0.1;
  work.repeat(1100);
  EXPECT_EQ(work.ways.next(), Way::second);
}

TEST(FasterWay, OneThatWasInterruptedSaysNothing) {
  FasterWay ways(Way::first);
  for (int i = 0; i < 3; ++i) ways.note(Way::first, 2);
  ASSERT_EQ(ways.next(), Way::second);
  for (int i = 0; i < 3; ++i) ways.note(Way::second, 1);
  ways.note(Way::second, 1);
  ways.note(Way::second, 1000);
  ways.note(Way::second, 1);
  for (int i = 0; i < 6; ++i) ways.note(Way::first, 2);
  EXPECT_EQ(ways.next(), Way::second);
}

TEST(FasterWay, TheFirstTriesDoNotCount) {
  FasterWay ways(Way::first);
  for (int i = 0; i < 3; ++i) ways.note(Way::first, 2);
  for (int i = 0; i < 3; ++i) ways.note(Way::second, 1);  // what the calls before had left
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ways.next(), Way::second);
    ways.note(Way::second, 3);
  }
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(ways.is_comparing());
    ASSERT_EQ(ways.next(), Way::first);
    ways.note(Way::first, 2);
  }
  EXPECT_FALSE(ways.is_comparing());
  EXPECT_EQ(ways.next(), Way::first);
}

TEST(FasterWay, ABadMomentOfTheUsualOneDoesNotCount) {
  Work work{FasterWay(Way::first), 1, 1.5};
  work.repeat(200);
  work.first = 5;  // as long as it takes to begin tries
  while (work.ways.next() == Way::first) work.repeat(1);
  work.first = 1;
  work.repeat(12);
  EXPECT_EQ(work.ways.next(), Way::first);
}

TEST(FasterWay, HearsOfWhatWasBegunBeforeAChange) {
  FasterWay ways(Way::first);
  for (int i = 0; i < 3; ++i) ways.note(Way::first, 1);
  for (int i = 0; i < 6; ++i) {  // several under way at once
    ways.note(Way::first, 1);
    ways.note(Way::second, 3);
  }
  ways.note(Way::second, 3);
  for (int i = 0; i < 6; ++i) ways.note(Way::first, 1);
  EXPECT_FALSE(ways.is_comparing());
  EXPECT_EQ(ways.next(), Way::first);
}

}  // namespace
}  // namespace kolo::base
