// SPDX-License-Identifier: Apache-2.0
//
// The chunk tables that pack and unpack work from, on the device. A portion that comes again with the same tensors in
// the same order - as all do once steps repeat - finds its table there, if it is packed on the same stream. A table
// takes as much of the memory as it has chunks, so those of thousands of small portions have room. All memory is
// allocated at the beginning.
//
// The driver's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "data/cuda/cuda_api.hpp"
#include "data/cuda/portions.hpp"

namespace kolo::cuda {

/// One table on the device, and what it was made from.
class ChunkTable {
 public:
  [[nodiscard]] const Chunk* chunks() const noexcept { return chunks_; }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// Says that work given to the stream so far was the last that reads the table. Always the same stream.
  void used(const OwnStream& stream) noexcept { user_ = &stream; }

 private:
  friend class Tables;
  [[nodiscard]] bool is_free();

  std::size_t begin_ = 0;  // in the memory, in chunks
  const Chunk* chunks_ = nullptr;
  cudaStream_t stream_ = nullptr;  // that has copied it
  std::uint32_t count_ = 0;
  std::uint64_t key_ = 0;
  std::vector<Segment> segments_;
  const OwnStream* user_ = nullptr;  // since the event was recorded
  Event last_use_;
  std::uint64_t number_ = 0;  // of its last use among all
};

class Tables {
 public:
  /// Memory for so many chunks, on the current device.
  explicit Tables(std::size_t chunks);
  /// The table of these segments; made, and copied by `stream`, unless it is there. Null while those for which it would
  /// have to make room are in use.
  [[nodiscard]] ChunkTable* find(const std::vector<Segment>& segments, cudaStream_t stream);
  /// What so many chunks take on the device.
  [[nodiscard]] static std::uint64_t device_bytes(std::size_t chunks) noexcept {
    return std::uint64_t{chunks} * sizeof(Chunk);
  }
  /// How often a table had to be made.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

 private:
  [[nodiscard]] bool find_room(std::size_t chunks, std::size_t& begin);
  [[nodiscard]] bool drop_oldest();
  void fill(ChunkTable& table, const std::vector<Segment>& segments, cudaStream_t stream);

  const std::size_t chunks_;
  DeviceMemory device_;
  PinnedMemory host_;
  std::map<std::size_t, std::unique_ptr<ChunkTable>> tables_;   // by where they begin
  std::unordered_multimap<std::uint64_t, ChunkTable*> by_key_;  // of their segments
  std::vector<std::unique_ptr<ChunkTable>> dropped_;            // to be used again
  std::uint64_t uses_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace kolo::cuda
