// SPDX-License-Identifier: Apache-2.0
//
// The chunk tables that pack and unpack work from, on the device. A step that comes again with the same tensors in the
// same order - as all do once steps repeat - finds its table there. All memory is allocated at the beginning.
//
// The driver's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/cuda/cuda_api.hpp"
#include "data/cuda/steps.hpp"

namespace kolo::cuda {

/// One table on the device, and what it was made from.
class Table {
 public:
  explicit Table(std::size_t chunks)
      : device_(chunks * sizeof(Chunk)), host_(chunks * sizeof(Chunk)), capacity_(chunks) {}
  [[nodiscard]] const Chunk* chunks() const noexcept { return reinterpret_cast<const Chunk*>(device_.data()); }
  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  /// Says that work given to the stream so far was the last that reads the table.
  void used(cudaStream_t stream) { last_use_.record(stream); }

 private:
  friend class Tables;
  void fill(const std::vector<Segment>& segments, cudaStream_t stream);

  DeviceMemory device_;
  PinnedMemory host_;
  const std::size_t capacity_;
  std::uint32_t count_ = 0;
  std::vector<Segment> segments_;
  Event last_use_;
  std::uint64_t number_ = 0;  // of its last use among all
};

class Tables {
 public:
  /// On the current device.
  Tables(std::size_t tables, std::size_t chunks);
  /// The table of these segments; made, and copied by `stream`, unless it is there. Null while all tables are in use.
  [[nodiscard]] Table* find(const std::vector<Segment>& segments, cudaStream_t stream);
  /// What so many take on the device.
  [[nodiscard]] static std::uint64_t device_bytes(std::size_t tables, std::size_t chunks) noexcept {
    return std::uint64_t{tables} * chunks * sizeof(Chunk);
  }
  /// How often a table had to be made.
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

 private:
  std::vector<std::unique_ptr<Table>> tables_;
  std::uint64_t uses_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace kolo::cuda
