// SPDX-License-Identifier: Apache-2.0
#include "base/check.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace kolo::base {
namespace {

TEST(Check, EvaluatesTheMessageOnlyWhenItFails) {
  int evaluated = 0;
  KOLO_CHECK(evaluated == 0) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, IsOneStatement) {
  bool other_branch = false;
  if (other_branch)
    KOLO_CHECK(other_branch) << "not reached";
  else
    other_branch = true;
  EXPECT_TRUE(other_branch);
}

TEST(CheckDeathTest, SaysWhereAndWhyAndAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int ranks = 3;
  EXPECT_EXIT(KOLO_CHECK(ranks == 4) << "ranks are " << ranks, testing::KilledBySignal(SIGABRT),
              "kolo: .*check_test.cpp:[0-9]+: check failed: ranks == 4: ranks are 3\n");
}

TEST(CheckDeathTest, Unreachable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(KOLO_UNREACHABLE(), testing::KilledBySignal(SIGABRT), "check_test.cpp:[0-9]+: .*unreachable");
  EXPECT_EXIT(KOLO_UNREACHABLE("kind 9"), testing::KilledBySignal(SIGABRT), "unreachable: kind 9\n");
}

}  // namespace
}  // namespace kolo::base
