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
#include "transport/joint_copy.hpp"

namespace kolo::engine {

/// A reduce's root reads so much of an input at a time: it reduces it before it leaves the core's cache.
inline constexpr std::size_t kPieceBytes = 128 << 10;
/// A reduce of 2 ranks of so much is done by both.
inline constexpr std::size_t kLeastJointReduce = 96 << 10;
/// One of so much is cut into many pieces.
inline constexpr std::size_t kLongJointReduce = 1 << 20;

/// How a reduce of 2 ranks is cut. The one that is not the root copies twice what it reduces. So a short input is two
/// pieces, the root's and a shorter one. A long one is cut into more, which get smaller towards the end, so that nobody
/// waits long for the other one's last piece.
inline transport::JointCopy::Cut cut_of_reduce(std::size_t bytes) {
  if (bytes >= kLongJointReduce) return {kPieceBytes / 2, kPieceBytes};
  const std::size_t piece = std::min<std::size_t>(160 << 10, base::round_up(bytes / 8 * 5, base::kPageBytes));
  return {piece, piece};
}

/// So much of a reduce's input is read at a time, at most.
inline std::size_t piece_of_reduce(const ExpressCall& call, int ranks) {
  return ranks == 2 && call.bytes() >= kLeastJointReduce ? cut_of_reduce(call.bytes()).most : kPieceBytes;
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
