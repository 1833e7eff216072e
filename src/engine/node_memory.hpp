// SPDX-License-Identifier: Apache-2.0
//
// How the memory that a node's ranks share is cut: the board, and then *blocks*. A block has for each rank of the node
// one column, in which a process set that the rank is a member of has its express and the slots of its data planes.
// The world's block comes first. For another set each of its ranks has a column in some block (`Blocks`): not
// necessarily all in the same one. Last come the channels of point to point (data/p2p/node_channels.hpp). What is not
// used takes no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/columns.hpp"
#include "core/signature.hpp"
#include "core/topology.hpp"

namespace kolo::engine {

struct NodeLayout {
  int ranks = 1;                  ///< of the node
  std::size_t blocks = 1;         ///< the world's included
  std::size_t board_bytes = 0;    ///< all a multiple of the page size
  std::size_t express_bytes = 0;  ///< of a column; 0: sets have none
  std::size_t ring_bytes = 0;     ///< of a column, for one data plane
  std::size_t rings = 1;          ///< data planes
  std::size_t message_bytes = 0;  ///< for point to point, of all ranks

  [[nodiscard]] std::size_t column_bytes() const noexcept { return express_bytes + rings * ring_bytes; }
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
    return columns.from(express_bytes + which * ring_bytes);
  }
};

/// Which columns of the node's memory a process set has. Every rank of the node keeps this account, of all sets of the
/// log, members or not: so all come to the same result, and nobody has to say it.
///
/// A set's columns are free again when the log has removed the set: then all its members have dropped it, and none of
/// them looks at another's column any more. The next set's members use theirs only after they have read of that set,
/// and look at a peer's only when that peer has, too (shm::SlotRing, control::Express).
///
/// One thread at a time.
class Blocks {
 public:
  /// `blocks`: the world's included.
  Blocks(const core::Topology& world, std::size_t blocks)
      : world_(world), blocks_(blocks), ranks_(static_cast<std::size_t>(world.local_size())) {}

  /// The log has added a set.
  void add(core::SetId set, const std::vector<std::int32_t>& members) {
    std::vector<Column>& columns = sets_[set];
    for (const std::int32_t member : members) {
      if (world_.node_of[static_cast<std::size_t>(member)] != world_.node) continue;
      const int rank = world_.local_rank_of[static_cast<std::size_t>(member)];
      Rank& its = ranks_[static_cast<std::size_t>(rank)];
      std::size_t block = its.used + 1;
      if (!its.free.empty()) block = its.free.extract(its.free.begin()).value();
      its.used = block > its.used ? block : its.used;
      KOLO_CHECK(block < blocks_) << "rank " << member << " is in more process sets than it has memory for";
      columns.push_back({rank, block});
    }
  }
  /// The log has removed it.
  void remove(core::SetId set) {
    const auto found = sets_.find(set);
    KOLO_CHECK(found != sets_.end()) << "process set " << set;
    for (const Column& column : found->second) ranks_[static_cast<std::size_t>(column.rank)].free.insert(column.block);
    sets_.erase(found);
  }
  /// The block in which a local rank has its column for that set, of which it is a member.
  [[nodiscard]] std::size_t block_of(core::SetId set, int local_rank) const {
    for (const Column& column : sets_.at(set)) {
      if (column.rank == local_rank) return column.block;
    }
    KOLO_CHECK(false) << "local rank " << local_rank << " is not in process set " << set;
    return 0;
  }

 private:
  struct Column {
    int rank = 0;  ///< local
    std::size_t block = 0;
  };
  struct Rank {
    std::size_t used = 0;        ///< blocks 1 ... used have been given away,
    std::set<std::size_t> free;  ///< but for these, which were given back
  };

  const core::Topology& world_;
  const std::size_t blocks_;
  std::vector<Rank> ranks_;  ///< by local rank
  std::map<core::SetId, std::vector<Column>> sets_;
};

}  // namespace kolo::engine
