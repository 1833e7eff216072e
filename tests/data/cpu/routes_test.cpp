// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/routes.hpp"

#include <gtest/gtest.h>

#include <kolo/error.hpp>

namespace kolo::data::cpu {
namespace {

using core::CollectiveKind;

constexpr std::size_t kKi = 1024;

std::string refusal_of(std::string_view changes) {
  try {
    const RouteTable table(changes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_setting);
    return error.status().message();
  }
  ADD_FAILURE() << changes << " is taken";
  return {};
}

TEST(Routes, ByDefaultGoBySizeAndRanks) {
  const Routes pair(RouteTable(), 2);
  EXPECT_TRUE(pair.may_take(CollectiveKind::allreduce, Route::small, 64 * kKi));
  EXPECT_FALSE(pair.may_take(CollectiveKind::allreduce, Route::small, 64 * kKi + 1));
  EXPECT_TRUE(pair.may_take(CollectiveKind::allreduce, Route::flat, 8 * kKi));
  EXPECT_FALSE(pair.may_take(CollectiveKind::allreduce, Route::flat, 8 * kKi + 1));
  EXPECT_TRUE(pair.may_take(CollectiveKind::reduce, Route::flat, std::size_t{1} << 40));
  EXPECT_TRUE(pair.may_take(CollectiveKind::barrier, Route::small, 0));
  EXPECT_FALSE(pair.may_take(CollectiveKind::alltoall_splits, Route::small, 0)) << "it has no such route";
  const Routes many(RouteTable(), 16);
  EXPECT_TRUE(many.may_take(CollectiveKind::allreduce, Route::small, 32 * kKi));
  EXPECT_FALSE(many.may_take(CollectiveKind::allreduce, Route::small, 32 * kKi + 1));
  EXPECT_FALSE(many.may_take(CollectiveKind::reduce, Route::flat, 8 * kKi + 1));
}

TEST(Routes, MessagesThatASharedCacheHoldsAreNotReadInPeersMemory) {
  EXPECT_EQ(RouteTable().messages_read_above(2), 8 * kKi - 1);
  EXPECT_EQ(RouteTable({}, 2048 * kKi).messages_read_above(2), 1024 * kKi - 1);
  EXPECT_EQ(RouteTable({}, 480 * 1024 * kKi).messages_read_above(2), 16 * 1024 * kKi - 1);
  EXPECT_EQ(RouteTable("message:1K-=peers", 2048 * kKi).messages_read_above(2), kKi - 1) << "a change counts";
  EXPECT_EQ(RouteTable("*:none=peers").messages_read_above(2), std::nullopt);
}

TEST(Routes, AChangeLeavesTheOthersAsTheyAre) {
  const RouteTable table("allreduce@3-4:1K-2k=small;allreduce:none=flat;*@9-:none=small;message:32K-=peers");
  EXPECT_EQ(table.describe(2, true).front(), "allreduce:0-64K=small,none=flat");
  EXPECT_EQ(table.describe(3, true).front(), "allreduce:1K-2K=small,none=flat");
  EXPECT_EQ(table.describe(9, true).front(), "allreduce:none=small,none=flat");
  EXPECT_EQ(table.describe(2, true).back(), "message:32K-=peers");
  EXPECT_EQ(table.describe(2, false).back(), "message:none=peers");
  EXPECT_EQ(table.messages_read_above(2), 32 * kKi - 1);
}

TEST(Routes, WhatIsDescribedCanBeGivenAgain) {
  for (const std::string_view changes : {"", "*:none=small", "reduce@4-4:0-1M=flat;gather:5-5=small"}) {
    for (const int ranks : {1, 4, 9, 1000}) {
      std::string text;
      const std::vector<std::string> entries = RouteTable(changes).describe(ranks, true);
      for (const std::string& entry : entries) text += entry + ";";
      EXPECT_EQ(RouteTable(text).describe(ranks, true), entries);
    }
  }
}

TEST(Routes, MemoryIsForTheLongestSmallCallAmongAnyNumberOfRanks) {
  EXPECT_EQ(RouteTable().longest_small(8), 64 * kKi);
  EXPECT_EQ(RouteTable("*:none=small").longest_small(8), std::nullopt);
  EXPECT_EQ(RouteTable("*:none=small;barrier:0-0=small").longest_small(8), 0U);
  EXPECT_EQ(RouteTable("*:0-1K=small;gather@5-6:0-1M=small").longest_small(8), 1024 * kKi);
  EXPECT_EQ(RouteTable("*:none=small;gather:0-3K=small;gather@0-4:none=small").longest_small(8), 3 * kKi)
      << "among five ranks";
}

TEST(Routes, WhatIsWrongIsSaidAndWhatIsRight) {
  const auto says = [](std::string_view changes, std::string_view what) {
    const std::string refusal = refusal_of(changes);
    EXPECT_NE(refusal.find("KOLO_ROUTES is \""), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(what), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("COLLECTIVE:SIZES=ROUTE"), std::string::npos) << refusal;
  };
  says("allredcue:0-1K=small", "\"allredcue\" is no collective with routes: expected one of allreduce, allgather,");
  says("allreduce", "\"allreduce\" names no route");
  says("allreduce:1K=small", "\"1K\" is no range of sizes: expected such as 0-64K, 8K-, or none");
  says("allreduce:2K-1K=small", "\"2K-1K\" is no range of sizes");
  says("allreduce:0-1K", "\"\" is no route of allreduce: expected one of small, flat");
  says("allreduce:0-1K=fast", "\"fast\" is no route of allreduce: expected one of small, flat");
  says("allreduce:1K-=slots", "slots takes what no other route takes");
  says("broadcast:0-1K=flat", "\"flat\" is no route of broadcast: expected one of small");
  says("allreduce@x:0-1K=small", "\"x\" is no range of ranks: expected such as 2-8 or 8-");
  says("allreduce@:0-1K=small", "\"\" is no range of ranks");
  says("allreduce:0-=small", "small calls of 0-: their sizes end at 16M at most");
  says("message:1K-2K=peers", "messages of 1K-2K: their sizes have no end");
  says("allreduce:none=small;;", "\"\" is no collective");
  says("allreduce:0-1K=small\n", "\"small\\n\" is no route of allreduce");
}

}  // namespace
}  // namespace kolo::data::cpu
