// SPDX-License-Identifier: Apache-2.0
//
// All-gather on one node: how it is cut into chunks, and what the stages of a chunk do.
//
// Contributions differ in length, and nobody knows the others'. So the first chunk, the *head*, holds each rank's
// length in front of the beginning of its data: a gather of small contributions is that one chunk, and one
// synchronisation. Everything after the head is the *rest*, whose chunks can be counted once the lengths are known.
//
//   fill    copy the next part of the own contribution into the own slot
//   take    copy everybody's parts from their slots, and the own part from where it lies, straight into the output
//
// All ranks fill and take at the same time. (One broadcast after the other, as between nodes, keeps all but one rank
// waiting for the first slot of each.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/backend.hpp"
#include "data/cpu/stream.hpp"
#include "transport/intra_node.hpp"

namespace kolo::data::cpu {

/// One all-gather as one rank sees it. Sizes in bytes; local ranks are the set's ranks, for there is one node.
class GatherPlan {
 public:
  void make(const data::Run& run, data::Job& job, int rank, int size, std::size_t slot_bytes,
            std::size_t past_cache_bytes);

  /// The part of a rank's contribution that lies in a chunk.
  struct Part {
    std::int64_t begin = 0;  ///< in the contribution
    std::int64_t bytes = 0;
  };
  [[nodiscard]] Part part(const Chunk& chunk, int rank) const noexcept;
  [[nodiscard]] std::int64_t bytes_of(int rank) const noexcept { return bytes_[static_cast<std::size_t>(rank)]; }
  /// Where a rank's contribution begins in the output; null when there is none.
  [[nodiscard]] std::byte* output_of(int rank) const noexcept;

  /// Learns all lengths, and asks for the output. Once, when the head is taken.
  void learn(std::vector<std::int64_t> bytes);
  /// Whether the output is written past the cache (data/cpu/tuning.hpp).
  [[nodiscard]] bool past_cache() const noexcept { return past_cache_; }
  /// How many chunks follow; after `learn`.
  [[nodiscard]] std::int64_t rest_chunks() const noexcept;

  /// Bytes of a slot that the length takes, so that the data is aligned.
  static constexpr std::size_t kHeader = 64;

 private:
  [[nodiscard]] Part head_part(int rank) const noexcept;
  [[nodiscard]] Part rest_part(int rank, std::int64_t chunk) const noexcept;

  const data::Run* run_ = nullptr;
  data::Job* job_ = nullptr;
  std::int64_t slot_bytes_ = 0;
  std::vector<std::int64_t> bytes_;  // by rank; before `learn` the own only
  std::vector<std::int64_t> begin_;  // in the output
  std::byte* output_ = nullptr;
  std::int64_t past_cache_bytes_ = 0;
  bool past_cache_ = false;
};

/// The stages of a chunk. `number` is its number in the ring of slots; the cursors walk through the own contribution,
/// one at each stage, from chunk to chunk.
class Gather {
 public:
  explicit Gather(transport::IntraNode& intra) noexcept : intra_(intra) {}

  void fill(const Chunk& chunk, std::uint64_t number, PieceCursor& cursor);
  [[nodiscard]] bool ready(std::uint64_t number) const { return intra_.all_reached(transport::Stage::filled) > number; }
  void take(const Chunk& chunk, std::uint64_t number, PieceCursor& cursor);

 private:
  void take_own(const Chunk& chunk, PieceCursor& cursor);
  void learn(GatherPlan& plan, std::uint64_t number);

  transport::IntraNode& intra_;
};

}  // namespace kolo::data::cpu
