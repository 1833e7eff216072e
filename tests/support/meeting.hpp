// SPDX-License-Identifier: Apache-2.0
//
// What tests of the start have in common.
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"

namespace kolo::test_support {

inline constexpr base::Duration kPatience = std::chrono::seconds(60);

/// Everybody's words, by rank.
inline std::vector<std::string> meet(bootstrap::Bootstrap& bootstrap, const std::string& mine = {}) {
  return bootstrap.exchange("test", mine, kPatience);
}

/// Of a world on one machine.
inline core::Topology topology_on_one_machine(const bootstrap::Bootstrap& bootstrap, int ranks_per_node = 0) {
  return core::make_topology(bootstrap.rank(), std::vector<int>(static_cast<std::size_t>(bootstrap.size()), 0),
                             ranks_per_node);
}

}  // namespace kolo::test_support
