// SPDX-License-Identifier: Apache-2.0
//
// How the memory that a node's ranks share is cut: the board, and then *blocks*. A block has for each rank of the node
// one column, in which a process set that the rank is a member of has its shortcut and the slots of its data planes.
// The world's block comes first. For another set each of its ranks has a column in some block (blocks.hpp): not
// necessarily all in the same one. Last come the channels of point to point (data/p2p/node_channels.hpp). What is not
// used takes no memory.
#pragma once

#include <cstddef>

#include "base/columns.hpp"

namespace kolo::engine {

struct NodeLayout {
  int ranks = 1;                   ///< of the node
  std::size_t blocks = 1;          ///< the world's included
  std::size_t board_bytes = 0;     ///< all a multiple of the page size
  std::size_t longest_small = 0;   ///< that a small call may give
  std::size_t shortcut_bytes = 0;  ///< of a column; 0: sets have none
  std::size_t ring_bytes = 0;      ///< of a column, for one data plane
  std::size_t rings = 1;           ///< data planes
  std::size_t message_bytes = 0;   ///< for point to point, of all ranks

  [[nodiscard]] std::size_t column_bytes() const noexcept { return shortcut_bytes + rings * ring_bytes; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return board_bytes + blocks * static_cast<std::size_t>(ranks) * column_bytes() + message_bytes;
  }
  /// What point to point has.
  [[nodiscard]] std::byte* messages(std::byte* memory) const noexcept { return memory + bytes() - message_bytes; }
  /// Where a local rank's column of a block begins.
  [[nodiscard]] std::byte* column(std::byte* memory, std::size_t block, int local_rank) const noexcept {
    const std::size_t columns = block * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(local_rank);
    return memory + board_bytes + columns * column_bytes();
  }
  /// Of columns of blocks, the part for data plane `which`.
  [[nodiscard]] base::Columns ring(const base::Columns& columns, std::size_t which) const {
    return columns.from(shortcut_bytes + which * ring_bytes);
  }
};

}  // namespace kolo::engine
