// SPDX-License-Identifier: Apache-2.0
//
// How a rank finds rank 0 among the addresses at which it may be (directions.hpp).
//
// All are tried at once: one that lies behind a firewall, or is of a host that is off, shall not hold the others up.
// But the Hello is said to one at a time: several addresses may lead to the same rank 0, which would hear of a rank
// that has come twice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "launch/connection.hpp"
#include "launch/directions.hpp"
#include "launch/exchange.hpp"

namespace kolo::launch {

/// Looks until rank 0 has answered as only rank 0 can. One thread at a time.
class Search {
 public:
  explicit Search(const Place& place) : place_(place) {}

  /// Again and again, wherever the directions lead. Nothing at the deadline: `said` tells why.
  [[nodiscard]] std::optional<Connection> run(Directions& directions, base::Time deadline);
  /// Once.
  [[nodiscard]] std::optional<Connection> try_all(const Route& route, base::Time deadline);

  [[nodiscard]] const std::string& said() const noexcept { return said_; }

 private:
  /// Tells more than that nobody is there, and is kept.
  void say(std::string what);
  void nobody(const std::string& what);

  const Place place_;
  std::string said_ = "nothing has answered there";
  bool somebody_ = false;
};

}  // namespace kolo::launch
