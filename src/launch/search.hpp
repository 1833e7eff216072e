// SPDX-License-Identifier: Apache-2.0
//
// How a rank finds rank 0 among the addresses at which it may be (directions.hpp).
//
// All addresses are tried at once, so that one behind a firewall, or of a host that is off, does not delay the others.
// The Hello is sent to one at a time, because several addresses may lead to the same rank 0, for which the rank would
// have come twice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "launch/connection.hpp"
#include "launch/directions.hpp"
#include "launch/exchange.hpp"

namespace kolo::launch {

/// Searches until rank 0 has answered and proven that it is rank 0. One thread at a time.
class Search {
 public:
  explicit Search(const Place& place) : place_(place) {}

  /// Tries repeatedly, at the addresses that the directions give. Empty at the deadline: `said` has the reason.
  [[nodiscard]] std::optional<Connection> run(Directions& directions, base::Time deadline);
  /// Tries the addresses once.
  [[nodiscard]] std::optional<Connection> try_all(const NetworkRoute& route, base::Time deadline);

  [[nodiscard]] const std::string& said() const noexcept { return said_; }

 private:
  /// Keeps a reason that says more than that no process is there.
  void say(std::string what);
  void nobody(const std::string& what);

  const Place place_;
  std::string said_ = "nothing has answered there";
  bool somebody_ = false;
};

}  // namespace kolo::launch
