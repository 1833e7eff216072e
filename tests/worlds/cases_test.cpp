// SPDX-License-Identifier: Apache-2.0
//
// The cases of tests/support/cases.hpp in worlds of threads, by all ranks and without one that has joined: every byte.
#include "tests/support/cases.hpp"

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <kolo/context.hpp>

#include "tests/support/sanitized.hpp"
#include "world.hpp"

namespace {

using kolo::testing::Nodes;
using kolo::testing::run_in;
using kolo::testing::worlds;

constexpr std::size_t kStrength = kolo::testing::unless_sanitized(std::size_t{3}, std::size_t{2});

const kolo::testing::Cases& all_cases() {
  static const kolo::testing::Cases cases = kolo::testing::cases_of({}, kStrength);
  return cases;
}

/// Without the last rank of each group, which has joined.
const kolo::testing::Cases& cases_without_the_last() {
  static const kolo::testing::Cases cases =
      kolo::testing::cases_of({{2, 3, 4, 8}, true, kolo::testing::On::cpu, true}, kStrength);
  return cases;
}

void run_all(const kolo::testing::Cases& cases, int ranks, Nodes nodes) {
  const std::vector<kolo::testing::Row> rows = rows_of(cases, ranks, nodes);
  ASSERT_FALSE(rows.empty());
  run_in({ranks, kolo::testing::ranks_per_node(ranks, nodes)}, {{"KOLO_SLOT_BYTES", "256"}, {"KOLO_SLOTS", "2"}}, [&] {
    kolo::testing::run_cases(
        kolo::world(), rows, [](const std::string& what) { ADD_FAILURE() << what << " on rank " << kolo::rank(); },
        nullptr, cases.worlds.last_joins);
  });
  std::printf("%zu cases of %zu\n", rows.size(), cases.covering.rows.size());
}

/// How many ranks, and their nodes.
class CasesIn : public testing::TestWithParam<std::pair<int, Nodes>> {};
class CasesWithoutTheLastIn : public CasesIn {};

TEST_P(CasesIn, EveryByte) { run_all(all_cases(), GetParam().first, GetParam().second); }
TEST_P(CasesWithoutTheLastIn, EveryByte) { run_all(cases_without_the_last(), GetParam().first, GetParam().second); }

std::string name_of(const testing::TestParamInfo<std::pair<int, Nodes>>& info) {
  static constexpr const char* kNames[] = {"OneNode", "EvenNodes", "UnevenNodes"};
  return std::to_string(info.param.first) + "Ranks" + kNames[static_cast<int>(info.param.second)];
}

INSTANTIATE_TEST_SUITE_P(Worlds, CasesIn,
                         testing::Values(std::pair{1, Nodes::one}, std::pair{2, Nodes::one}, std::pair{2, Nodes::even},
                                         std::pair{3, Nodes::one}, std::pair{3, Nodes::even},
                                         std::pair{3, Nodes::uneven}, std::pair{4, Nodes::one},
                                         std::pair{4, Nodes::even}, std::pair{4, Nodes::uneven},
                                         std::pair{8, Nodes::one}, std::pair{8, Nodes::even},
                                         std::pair{8, Nodes::uneven}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Worlds, CasesWithoutTheLastIn,
                         testing::Values(std::pair{2, Nodes::one}, std::pair{2, Nodes::even}, std::pair{3, Nodes::one},
                                         std::pair{3, Nodes::even}, std::pair{3, Nodes::uneven},
                                         std::pair{4, Nodes::one}, std::pair{4, Nodes::even},
                                         std::pair{4, Nodes::uneven}, std::pair{8, Nodes::one},
                                         std::pair{8, Nodes::even}, std::pair{8, Nodes::uneven}),
                         name_of);

}  // namespace
