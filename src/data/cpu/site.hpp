// SPDX-License-Identifier: Apache-2.0
//
// What the collectives of one process set share: where this rank is, its slots, its ways to other nodes, and how chunks
// are cut. Each `Collective` holds a reference to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/machine.hpp"
#include "base/scratch.hpp"
#include "core/topology.hpp"
#include "data/backend.hpp"
#include "data/cpu/chunk.hpp"
#include "data/cpu/lane.hpp"
#include "data/cpu/mesh.hpp"
#include "data/cpu/routes.hpp"
#include "data/cpu/tuning.hpp"
#include "data/kernels/copy.hpp"
#include "transport/intra_node.hpp"
#include "transport/regions.hpp"

namespace kolo::data::cpu {

/// The backend's, and outlives its collectives. One driver.
struct Site {
  const core::Topology& topology;
  const std::vector<int>& members;      ///< as CpuBackendOptions have them,
  const std::vector<int>& local_ranks;  ///< these, too
  const Tuning& tuning;
  const Routes& routes;
  transport::IntraNode& intra;
  transport::RegionTable& regions;
  int lanes = 1;         ///< ranks of the smallest node
  Lane* lane = nullptr;  ///< null: there is one node, or this rank is in no lane
  Mesh* mesh = nullptr;  ///< null: there is one node

  // Arguments of kernels, by local rank or node, and memory for a result, for as long as one stage of one chunk lasts.
  std::vector<const void*> inputs = {};
  std::vector<void*> outputs = {};
  base::Scratch scratch = {};

  kernels::PeerCopy to_peers = {};  ///< into slots

  [[nodiscard]] bool one_node() const noexcept { return mesh == nullptr; }
  /// Whether a run takes this route, which leads inside a node.
  [[nodiscard]] bool takes(core::CollectiveKind kind, Route route, std::size_t bytes) const noexcept {
    return one_node() && routes.may_take(kind, route, bytes);
  }
  [[nodiscard]] int local_rank() const noexcept { return topology.local_rank; }
  [[nodiscard]] int local_size() const noexcept { return topology.local_size(); }
  [[nodiscard]] bool is_near(int rank) const noexcept {
    return topology.node_of[static_cast<std::size_t>(rank)] == topology.node;
  }
  [[nodiscard]] int local_rank_of(int rank) const noexcept {
    return topology.local_rank_of[static_cast<std::size_t>(rank)];
  }
  /// As InterNode numbers a rank of the set.
  [[nodiscard]] int world_rank_of(int rank) const noexcept {
    return members.empty() ? rank : members[static_cast<std::size_t>(rank)];
  }
  /// Where a local rank's part of a region is reached.
  [[nodiscard]] std::byte* at(int local_rank, transport::Place place) const {
    return regions.at(local_ranks.empty() ? local_rank : local_ranks[static_cast<std::size_t>(local_rank)], place);
  }

  [[nodiscard]] std::byte* slot(int local_rank, const Chunk& chunk) const noexcept {
    return intra.slot(local_rank, chunk.number);
  }
  [[nodiscard]] std::byte* own_slot(const Chunk& chunk) const noexcept { return slot(topology.local_rank, chunk); }
  [[nodiscard]] std::size_t exchange_of(const Chunk& chunk) const noexcept { return chunk.number % intra.slots(); }
  /// The part of a chunk that this rank brings to all others: its share of the node, or its lane's.
  [[nodiscard]] Part own_share(std::int64_t elements, std::int64_t granule) const noexcept {
    return part_of(elements, topology.local_rank, lanes, granule);
  }
  /// How much of `bytes` in all a chunk holds: a slot, less where the stages would not overlap otherwise.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t bytes) const noexcept {
    const std::size_t least = one_node() ? tuning.least_chunk_bytes : tuning.least_exchanged_bytes();
    return std::min(intra.slot_bytes(), base::round_up(std::max(bytes / intra.slots(), least), 64));
  }
};

}  // namespace kolo::data::cpu
