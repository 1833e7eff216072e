// SPDX-License-Identifier: Apache-2.0
//
// How the data of an unnamed call that passes by the log is cut (express_routes.hpp).
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/columns.hpp"
#include "base/round_up.hpp"
#include "data/backend.hpp"
#include "engine/express_routes.hpp"

namespace kolo::engine {

/// A reduce of 2 ranks of so much is done by both.
inline constexpr std::size_t kLeastJointReduce = 96 << 10;
/// A reduce's root reads so much of an input at a time: it reduces it before it leaves the core's cache.
inline constexpr std::size_t kPieceBytes = 128 << 10;
/// Of 2 ranks, which both reduce: the other one copies each piece twice. So a short input is two pieces, the root's
/// and a shorter one; in a long one a call of the system may read more.
inline constexpr std::size_t kJointPieceBytes = 160 << 10;
inline constexpr std::size_t kLongJointPieceBytes = 256 << 10;
inline constexpr std::size_t kLongJointReduce = 4 << 20;

/// So much of a reduce's input is read at a time.
inline std::size_t piece_of_reduce(const ExpressCall& call, int ranks) {
  if (ranks != 2 || call.bytes() < kLeastJointReduce) return kPieceBytes;
  if (call.bytes() >= kLongJointReduce) return kLongJointPieceBytes;
  const std::size_t most = call.bytes() / 8 * 5;
  return std::min(kJointPieceBytes, base::round_up(most, base::kPageBytes));
}

/// Rank `rank`'s rows of a reduce-scatter, as bytes of the input.
struct Rows {
  std::size_t begin = 0;
  std::size_t end = 0;
};
inline Rows rows_of(const ExpressCall& call, int rank, int ranks) {
  const data::RowsOf rows(call.shape[0], rank, ranks);
  const std::size_t row = call.shape[0] == 0 ? 0 : call.bytes() / static_cast<std::size_t>(call.shape[0]);
  const auto begin = static_cast<std::size_t>(rows.begin) * row;
  return {begin, begin + static_cast<std::size_t>(rows.count) * row};
}

}  // namespace kolo::engine
