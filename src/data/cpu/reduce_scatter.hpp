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
// That is one synchronisation, and each element is written to a slot and read from there once. Where elements are
// encoded the own block goes through the own slot as well, so that every input is rounded alike, and so is its sum.
//
// Between nodes there is a step in the middle. A block is reduced into a partial sum on every node: on its owner's by
// the owner itself, on the others by one of the node's ranks, which sends it to the owner (mesh.hpp); owners
// are dealt out to the ranks of a node in turn. The owner adds up the nodes' sums in the order of nodes. Inside a node
// elements are added in rank order. So every element's sum has one order, whatever the batching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/cpu/collective.hpp"
#include "data/cpu/small.hpp"
#include "data/cpu/wire_format.hpp"
#include "data/kernels/reduction.hpp"

namespace kolo::data::cpu {

/// One reduce-scatter, and its chunks, which all ranks see alike. Elements, ranks of the set.
class ScatterPlan {
 public:
  ScatterPlan() = default;
  /// `rank`: this one, whose result is written past the cache from so many bytes on where it replaces no input.
  ScatterPlan(const data::Run& run, int rank, int size, std::size_t slot_bytes, std::size_t past_cache_bytes) noexcept;
  [[nodiscard]] std::int64_t chunks() const noexcept { return chunks_; }

  [[nodiscard]] const kernels::Reduction& reduction() const noexcept { return reduction_; }
  [[nodiscard]] const WireFormat& format() const noexcept { return format_; }
  /// Bytes of so many elements' partial sums.
  [[nodiscard]] std::size_t sum_bytes(std::int64_t elements) const noexcept {
    return static_cast<std::size_t>(elements) * size_of(format_.sums());
  }
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

  /// Of how many owners a chunk holds a block, and the most elements of one.
  [[nodiscard]] static int owners_in_chunk(int size, std::size_t slot_bytes) noexcept;
  [[nodiscard]] static std::int64_t largest_block(int size, std::size_t slot_bytes, const WireFormat& format) noexcept;

 private:
  kernels::Reduction reduction_;
  WireFormat format_;
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

class ReduceScatter final : public Collective {
 public:
  using Collective::Collective;
  static const SmallPart kSmall;
  /// What the mesh must hold for a chunk.
  static MeshBytes mesh_bytes(const core::Topology& topology, std::size_t slot_bytes) noexcept;

  void open(Runs runs, data::Job& job) override;
  Cut cut(Chunk& chunk, std::uint64_t taken) override;
  void fill(Chunk& chunk) override;
  /// Reduces and notes what goes to other nodes; calls nobody.
  void enter(const Chunk& chunk) override;
  [[nodiscard]] bool ready(const Chunk& chunk) const override;
  void take(const Chunk& chunk) override;

 private:
  /// Whether this rank reduces the owner's block on its node.
  [[nodiscard]] bool reduces_for(int owner) const noexcept;
  /// The rank that does so on another node, as InterNode numbers them.
  [[nodiscard]] int reducer_for(int owner, int node) const noexcept;
  /// Points the site's inputs at the block on all local ranks.
  void gather_inputs(const ScatterPlan::Block& block, const Chunk& chunk);
  void take_inside_node(const ScatterPlan::Block& block, const Chunk& chunk);
  void take_between_nodes(const ScatterPlan::Block& block, const Chunk& chunk);

  ScatterPlan plan_;
  std::int64_t next_ = 0;  // chunk of the plan
};

}  // namespace kolo::data::cpu
