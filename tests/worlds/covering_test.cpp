// SPDX-License-Identifier: Apache-2.0
//
// Covering arrays, and that the cases of the matrix test are one: counted again, in another way.
#include "tests/support/covering.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/cases.hpp"
#include "tests/support/sanitized.hpp"

namespace {

using kolo::testing::cover;
using kolo::testing::Covering;
using kolo::testing::Factors;
using kolo::testing::FactorSet;
using kolo::testing::kUnset;
using kolo::testing::Row;
using kolo::testing::sets_of;

/// How many combinations of a set there are, are in some row, and are excluded by themselves.
struct Count {
  std::int64_t all = 0;
  std::int64_t there = 0;
  std::int64_t excluded = 0;
};

Count count(const Factors& factors, const FactorSet& set, const std::vector<Row>& rows) {
  std::set<std::vector<int>> there;
  for (const Row& row : rows) {
    std::vector<int> values;
    for (const std::size_t factor : set) values.push_back(row[factor]);
    there.insert(values);
  }
  Count count;
  std::vector<int> values(set.size(), 0);
  for (bool more = true; more;) {
    Row row(factors.values.size(), kUnset);
    for (std::size_t i = 0; i < set.size(); ++i) row[set[i]] = values[i];
    const bool is_excluded = factors.excludes(row) != nullptr;
    const bool is_there = there.count(values) > 0;
    EXPECT_FALSE(is_excluded && is_there);
    ++count.all;
    count.there += is_there ? 1 : 0;
    count.excluded += is_excluded ? 1 : 0;
    more = false;
    for (std::size_t i = 0; i < set.size() && !more; ++i) {
      values[i] = (values[i] + 1) % factors.values[set[i]];
      more = values[i] != 0;
    }
  }
  return count;
}

/// Each combination is in a row, or excluded by itself, or by what it leaves; as often as the generator says.
void expect_covers(const Factors& factors, const std::vector<FactorSet>& sets, const Covering& covering) {
  for (const Row& row : covering.rows) {
    ASSERT_EQ(row.size(), factors.values.size());
    for (std::size_t factor = 0; factor < row.size(); ++factor) {
      ASSERT_GE(row[factor], 0);
      ASSERT_LT(row[factor], factors.values[factor]);
    }
    ASSERT_EQ(factors.excludes(row), nullptr);
  }
  Count sum;
  for (const FactorSet& set : sets) {
    const Count of_set = count(factors, set, covering.rows);
    sum.all += of_set.all;
    sum.there += of_set.there;
    sum.excluded += of_set.excluded;
  }
  std::int64_t by_itself = 0;
  std::int64_t by_what_it_leaves = 0;
  for (const auto& [reason, number] : covering.excluded) {
    (reason == "what it leaves for the other factors is excluded" ? by_what_it_leaves : by_itself) += number;
  }
  EXPECT_EQ(covering.combinations, sum.there);
  EXPECT_EQ(by_itself, sum.excluded);
  EXPECT_EQ(sum.there + by_itself + by_what_it_leaves, sum.all);
}

const char* nothing(const Row&) { return nullptr; }

TEST(Covering, SetsOfFactors) {
  EXPECT_EQ(sets_of(3, 2), (std::vector<FactorSet>{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(sets_of(5, 3).size(), 10U);
  EXPECT_EQ(sets_of(2, 3), std::vector<FactorSet>{});
  EXPECT_EQ(sets_of(2, 0), std::vector<FactorSet>{{}});
}

TEST(Covering, HasAllPairsAndAllTriples) {
  const Factors factors{{3, 5, 2, 4, 2, 1}, nothing};
  for (const std::size_t strength : {1U, 2U, 3U}) {
    const std::vector<FactorSet> sets = sets_of(factors.values.size(), strength);
    const Covering covering = cover(factors, sets);
    expect_covers(factors, sets, covering);
    EXPECT_TRUE(covering.excluded.empty());
    const std::size_t least = strength == 1 ? 5 : strength == 2 ? 20 : 60;
    EXPECT_GE(covering.rows.size(), least);
    EXPECT_LE(covering.rows.size(), least + least / 2);  // of 240
  }
}

TEST(Covering, OfOneSetIsItsProduct) {
  const Factors factors{{3, 5, 2, 4}, nothing};
  EXPECT_EQ(cover(factors, {{0, 1, 2, 3}}).rows.size(), 120U);
  EXPECT_EQ(cover(factors, {{3, 1}}).rows.size(), 20U);
}

TEST(Covering, SaysWhatIsExcluded) {
  // Factor 0 decides 1, and 1 decides 2: that 0 decides 2, too, is said by no rule.
  const auto excludes = [](const Row& row) -> const char* {
    if (row[0] != kUnset && row[1] != kUnset && row[0] != row[1]) return "0 is 1";
    if (row[1] != kUnset && row[2] != kUnset && row[1] != row[2]) return "1 is 2";
    return nullptr;
  };
  const Factors factors{{2, 2, 2, 3}, excludes};
  const std::vector<FactorSet> sets = sets_of(4, 2);
  const Covering covering = cover(factors, sets);
  expect_covers(factors, sets, covering);
  EXPECT_EQ(covering.rows.size(), 6U);
  EXPECT_EQ(covering.excluded,
            (std::map<std::string, std::int64_t>{
                {"0 is 1", 2}, {"1 is 2", 2}, {"what it leaves for the other factors is excluded", 2}}));
}

TEST(Covering, IsTheSameEveryTime) {
  const Factors factors{{4, 3, 3, 2}, nothing};
  EXPECT_EQ(cover(factors, sets_of(4, 3)).rows, cover(factors, sets_of(4, 3)).rows);
}

TEST(Cases, HaveEveryCombinationThatCanBe) {
  const kolo::testing::Worlds worlds;
  const std::size_t strength = kolo::testing::unless_sanitized(3U, 2U);
  const kolo::testing::Cases cases = kolo::testing::cases_of(worlds, strength);
  const Factors factors{kolo::testing::values_of(worlds),
                        [&](const Row& row) { return kolo::testing::why_excluded(worlds, row); }};
  std::vector<FactorSet> sets = sets_of(factors.values.size(), strength);
  const auto number = [](kolo::testing::Factor factor) { return static_cast<std::size_t>(factor); };
  using kolo::testing::Factor;
  sets.push_back({number(Factor::collective), number(Factor::ranks), number(Factor::group), number(Factor::form)});
  expect_covers(factors, sets, cases.covering);
  // And no value is left out altogether.
  for (const FactorSet& set : sets_of(factors.values.size(), 1)) {
    EXPECT_EQ(count(factors, set, cases.covering.rows).there, factors.values[set[0]]) << set[0];
  }
  std::printf("%s\n", describe(cases).c_str());
}

}  // namespace
