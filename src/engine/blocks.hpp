// SPDX-License-Identifier: Apache-2.0
//
// Which columns of the node's memory (node_memory.hpp) a process set has. Every rank of the node keeps this account, of
// all sets of the log, members or not: so all come to the same result, and nobody has to say it.
//
// A set's columns are free again when the log has removed the set: then all its members have dropped it, and none of
// them looks at another's column any more. The next set's members use theirs only after they have read of that set, and
// look at a peer's only when that peer has, too (shm::SlotRing, control::Shortcut).
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "core/signature.hpp"
#include "core/topology.hpp"

namespace kolo::engine {

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
