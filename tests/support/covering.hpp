// SPDX-License-Identifier: Apache-2.0
//
// Covering arrays. Of tests with many factors (a dtype, a number of ranks, ...) the full product is too long. Most
// mistakes take two or three factors to show; so every combination of values of any three factors is in some row.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace kolo::testing {

/// A value of each factor, counted from 0; kUnset where it has none yet.
using Row = std::vector<int>;
constexpr int kUnset = -1;
/// Of factors, by number.
using FactorSet = std::vector<std::size_t>;

struct Factors {
  std::vector<int> values;  ///< how many each has
  /// Why no row may have these values, or null. It is asked about rows that are not complete, too: null unless the
  /// values that are there suffice to say it.
  std::function<const char*(const Row&)> excludes;
};

struct Covering {
  std::vector<Row> rows;
  std::int64_t combinations = 0;                 ///< that the rows have
  std::map<std::string, std::int64_t> excluded;  ///< those that no row may have, by reason
};

/// All sets of `strength` of so many factors.
std::vector<FactorSet> sets_of(std::size_t factors, std::size_t strength);

/// Few rows (not as few as possible) that have all combinations of values of each of the sets but those that no row may
/// have. Depends on nothing but its arguments.
Covering cover(const Factors& factors, const std::vector<FactorSet>& sets);

}  // namespace kolo::testing
