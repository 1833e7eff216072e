// SPDX-License-Identifier: Apache-2.0
//
// Worlds of ranks as threads, in which all tests of this folder run.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <kolo/context.hpp>

#include "tests/support/sanitized.hpp"

namespace kolo::testing {

struct World {
  World(int its_ranks, int its_per_node = 0) : ranks(its_ranks), per_node(its_per_node) {}
  int ranks;
  int per_node;  ///< how many on each (virtual) node; 0: all on one
};

inline std::string name_of(const ::testing::TestParamInfo<World>& info) {
  return std::to_string(info.param.ranks) + "ranks" + std::to_string(info.param.per_node) + "pernode";
}

/// For INSTANTIATE_TEST_SUITE_P: these worlds, and in a build without sanitizers `more` of them. The thread sanitizer
/// has those of two to four ranks: threads meet there as in larger ones, which the address sanitizer has.
inline auto worlds(std::vector<World> all, const std::vector<World>& more = {}) {
  if (kThreadsSanitized) std::erase_if(all, [](const World& one) { return one.ranks < 2 || one.ranks > 4; });
  return ::testing::ValuesIn(and_unless_sanitized(std::move(all), more));
}

/// What a test gives its worlds: some settings, or all options.
struct With {
  With() = default;
  With(std::initializer_list<std::pair<const std::string, std::string>> settings) { options.settings = settings; }
  With(Options all) : options(std::move(all)) {}
  Options options;
};

/// Runs `body` on every rank. Where the settings do not say otherwise, a slow machine has time.
template <class Body>
void run_in(const World& world, With with, const Body& body) {
  with.options.settings.emplace("KOLO_RANKS_PER_NODE", std::to_string(world.per_node));
  with.options.settings.emplace("KOLO_TIMEOUT_S", "100");
  run_local(world.ranks, body, with.options);
}
template <class Body>
void run_in(const World& world, const Body& body) {
  run_in(world, With(), body);
}

/// A suite whose tests run in each of several worlds, with the same settings.
class InWorlds : public ::testing::TestWithParam<World> {
 protected:
  explicit InWorlds(With with = {}) : with_(std::move(with)) {}

  template <class Body>
  void run(const Body& body) const {
    run_in(GetParam(), with_, body);
  }
  /// `with` is beside the suite's settings, or instead of them.
  template <class Body>
  void run(With with, const Body& body) const {
    with.options.settings.insert(with_.options.settings.begin(), with_.options.settings.end());
    run_in(GetParam(), std::move(with), body);
  }
  [[nodiscard]] static int ranks() { return GetParam().ranks; }

 private:
  const With with_;
};

}  // namespace kolo::testing
