// SPDX-License-Identifier: Apache-2.0
//
// Every collective between processes, by name and without one: past the log and by it, from no element to many chunks.
// (Types, operations and forms: matrix.cpp.)
#include <cstdint>
#include <string>

#include <kolo/kolo.hpp>

#include "tests/mpi/checks/check.hpp"
#include "tests/support/every_collective.hpp"

namespace {

using kolo::testing::check_every_collective;
using kolo::testing::Report;

void check_collectives(Report& report) {
  const kolo::Group world = kolo::world();
  const auto wrong = [&report](const std::string& what) { report.check(false, what); };
  int call = 0;
  for (const std::int64_t count : {0, 1, 13, 14, 1000, 4096, 4097, 20'000, 300'001}) {
    for (const std::string& name : {std::string(), std::string("x ")}) {
      check_every_collective<std::int32_t>(world, count, call++, name, wrong);
      check_every_collective<float>(world, count, call++, name, wrong);
      if (count <= 20'000) check_every_collective<std::uint8_t>(world, count, call++, name, wrong);
      if (count >= 20'000) check_every_collective<double>(world, count, call++, name, wrong);
    }
  }
  const int last = kolo::size() - 1;
  report.check(kolo::broadcast_object("from " + std::to_string(kolo::rank()), last) == "from " + std::to_string(last),
               "broadcast_object");
}

const kolo::testing::Registered registered({.name = "collectives", .run = check_collectives});

}  // namespace
