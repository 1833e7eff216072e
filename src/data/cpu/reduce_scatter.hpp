// SPDX-License-Identifier: Apache-2.0
//
// Reduce-scatter: how it is cut into chunks, and what the stages of a chunk do.
//
// Every rank *owns* a stretch of the result. A chunk holds a *block* of several owners' stretches, next to each other
// in the slot, so that several ranks have something to reduce:
//
//   fill    copy the own input for the blocks of other ranks into the own slot; the own block is read where it lies
//   take    reduce the own block over all slots and the own input, straight into the output
//
// That is one synchronisation, and each element is written to a slot and read from there once.
//
// Between nodes there is a step in the middle. A block is reduced into a partial sum on every node: on its owner's by
// the owner itself, on the others by one of the node's ranks, which sends it to the owner (data/cpu/mesh.hpp); owners
// are dealt out to the ranks of a node in turn. The owner adds up the nodes' sums in the order of nodes. Inside a node
// elements are added in rank order. So every element's sum has one order, whatever the batching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/topology.hpp"
#include "data/backend.hpp"
#include "data/cpu/mesh.hpp"
#include "data/cpu/stream.hpp"
#include "data/kernels/reduce.hpp"
#include "transport/intra_node.hpp"

namespace kolo::data::cpu {

/// One reduce-scatter, and its chunks, which all ranks see alike. Elements, ranks of the set.
class ScatterPlan {
 public:
  ScatterPlan() = default;
  /// `rank`: this one, whose result is written past the cache from so many bytes on where it replaces no input.
  ScatterPlan(const data::Run& run, int rank, int size, std::size_t slot_bytes, std::size_t past_cache_bytes) noexcept;
  [[nodiscard]] std::int64_t chunks() const noexcept { return chunks_; }

  [[nodiscard]] const kernels::Reduction& reduction() const noexcept { return reduction_; }
  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  /// The owners whose blocks a chunk holds: a range.
  [[nodiscard]] int first_owner(std::int64_t chunk) const noexcept {
    return static_cast<int>(chunk / blocks_) * owners_;
  }
  [[nodiscard]] int end_owner(std::int64_t chunk) const noexcept {
    return std::min(size_, first_owner(chunk) + owners_);
  }
  [[nodiscard]] bool holds(std::int64_t chunk, int owner) const noexcept {
    return owner >= first_owner(chunk) && owner < end_owner(chunk);
  }
  /// An owner's block in a chunk that holds it; perhaps empty.
  struct Block {
    std::size_t offset = 0;  ///< in the slot, bytes
    std::int64_t elements = 0;
    const std::byte* input = nullptr;  ///< this rank's
    std::byte* output = nullptr;       ///< for this rank, if it is the owner
  };
  [[nodiscard]] Block block(std::int64_t chunk, int owner) const noexcept;
  [[nodiscard]] bool past_cache() const noexcept { return past_cache_; }
  /// The most elements of a block.
  [[nodiscard]] std::int64_t block_elements() const noexcept { return block_; }

  /// The most that a chunk holds of one owner, for elements of this width, and of how many owners.
  [[nodiscard]] static int owners_in_chunk(int size, std::size_t slot_bytes) noexcept;
  [[nodiscard]] static std::int64_t largest_block(int size, std::size_t slot_bytes, std::size_t width) noexcept;

 private:
  kernels::Reduction reduction_;
  std::size_t width_ = 1;
  int size_ = 1;
  std::int64_t rows_ = 0;
  std::int64_t row_elements_ = 0;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  int owners_ = 1;           // in a chunk
  std::int64_t block_ = 1;   // elements of one of them in a chunk
  std::int64_t blocks_ = 1;  // of one of them
  std::int64_t chunks_ = 0;
  bool past_cache_ = false;
};

/// The stages of a chunk. `chunk` is its place in the plan, `number` its number in the ring of slots.
class ReduceScatter {
 public:
  /// What is given outlives this; `mesh` is null on one node. `members` as CpuBackendOptions have them.
  ReduceScatter(const core::Topology& topology, const std::vector<int>& members, transport::IntraNode& intra,
                Mesh* mesh);
  /// What the mesh must hold for an exchange.
  [[nodiscard]] static std::size_t outgoing_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept;
  [[nodiscard]] static std::size_t incoming_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept;

  void fill(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number);
  /// Reduces and notes what goes to other nodes; calls nobody. False when not all of the node have filled.
  [[nodiscard]] bool enter(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number);
  [[nodiscard]] bool ready(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number) const;
  void take(const ScatterPlan& plan, std::int64_t chunk, std::uint64_t number);

 private:
  /// Whether this rank reduces the owner's block on its node.
  [[nodiscard]] bool reduces_for(int owner) const noexcept;
  /// The rank that does so on another node, as InterNode numbers them.
  [[nodiscard]] int reducer_for(int owner, int node) const noexcept;
  /// Points inputs_ at the block on all local ranks.
  void gather_inputs(const ScatterPlan::Block& block, std::uint64_t number);
  void take_between_nodes(const ScatterPlan& plan, const ScatterPlan::Block& block, std::uint64_t number);
  [[nodiscard]] int world_rank_of(int rank) const noexcept {
    return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::size_t exchange_of(std::uint64_t number) const noexcept { return number % intra_.slots(); }

  const core::Topology& topology_;
  const std::vector<int>& members_;
  transport::IntraNode& intra_;
  Mesh* mesh_;
  std::vector<const void*> inputs_;  // by local rank
};

}  // namespace kolo::data::cpu
