// SPDX-License-Identifier: Apache-2.0
//
// The cases of tests/support/cases.hpp between processes: all pairs of their factors, and every collective in every
// form and group, through slots that are too small for most, and by the routes that seldom are taken.
#include <cstdio>
#include <string>
#include <vector>

#include <kolo/context.hpp>

#include "tests/mpi/checks/check.hpp"
#include "tests/support/cases.hpp"

namespace {

using kolo::testing::Report;

void check_matrix(Report& report) {
  const kolo::testing::Cases cases = kolo::testing::cases_of({.ranks = {kolo::size()}, .has_virtual_nodes = false}, 2);
  kolo::testing::run_cases(kolo::world(), cases.covering.rows,
                           [&](const std::string& what) { report.check(false, what); });
  report.check(cases.covering.rows.size() > 100, "there are cases");
  if (kolo::rank() == 0) std::printf("%d ranks: %zu cases\n", kolo::size(), cases.covering.rows.size());
}

const kolo::testing::Registered
    registered({.name = "matrix",
                .run = check_matrix,
                .options = {kolo::Options{}.with_setting("KOLO_SLOT_BYTES", "256").with_setting("KOLO_SLOTS", "2"),
                            kolo::Options{}.with_setting("KOLO_ROUTES", "*:none=small,0-=flat")}});

}  // namespace
