// SPDX-License-Identifier: Apache-2.0
//
// A check of the public API that runs in any world: the context is bound to the calling thread when it runs. Each file
// of this folder registers one; tests/mpi/checks.cpp runs them, all in one launch of mpirun or one in a job of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <kolo/options.hpp>

#include "tests/mpi/report.hpp"

namespace kolo::testing {

struct Check {
  std::string name;
  void (*run)(Report& report) = nullptr;
  /// It runs once with each.
  std::vector<Options> options{Options{}};
  /// The sizes of the worlds that it runs in, and their `KOLO_RANKS_PER_NODE`, of those that there are; empty: all.
  std::vector<int> ranks = {};
  std::vector<int> per_node = {};
};

/// Those of all files that are linked, in no particular order.
inline std::vector<Check>& checks() {
  static std::vector<Check> all;
  return all;
}

/// One at namespace scope registers a check.
struct Registered {
  explicit Registered(Check check) { checks().push_back(std::move(check)); }
};

}  // namespace kolo::testing
