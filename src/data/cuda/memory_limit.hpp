// SPDX-License-Identifier: Apache-2.0
//
// How much memory of a GPU a context may use for itself (KOLO_GPU_MEMORY_LIMIT): what it has allocated, as it asked for
// it. Asked before every allocation; what CUDA and NCCL use for themselves is not known here.
//
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <kolo/error.hpp>

#include "base/mutex.hpp"

namespace kolo::cuda {

class MemoryLimit {
 public:
  /// 0: no limit.
  explicit MemoryLimit(std::uint64_t bytes) noexcept : limit_(bytes) {}
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  /// Counts these bytes until they are given back. Throws Error (out_of_memory) when they are too many. `what` and
  /// `remedy` are parts of its sentence: "the arena", "make the arena smaller".
  void take(std::uint64_t bytes, const std::string& what, const std::string& remedy) {
    const base::MutexLock lock(mutex_);
    if (limit_ != 0 && bytes > limit_ - used_) {
      throw Error(ErrorCode::out_of_memory, what + " would take " + std::to_string(bytes) +
                                                " bytes of the GPU, but KOLO_GPU_MEMORY_LIMIT allows " +
                                                std::to_string(limit_) + ", of which " + std::to_string(used_) +
                                                " are in use: raise it, or " + remedy);
    }
    used_ += bytes;
  }
  void give_back(std::uint64_t bytes) noexcept {
    const base::MutexLock lock(mutex_);
    used_ -= bytes;
  }
  [[nodiscard]] std::uint64_t used() const noexcept {
    const base::MutexLock lock(mutex_);
    return used_;
  }

 private:
  const std::uint64_t limit_;
  mutable base::Mutex mutex_;
  std::uint64_t used_ KOLO_GUARDED_BY(mutex_) = 0;
};

/// Bytes that are counted for as long as this lives. What is allocated of them stands behind it among its owner's
/// members, so that it is freed first.
class CountedMemory {
 public:
  CountedMemory(std::shared_ptr<MemoryLimit> limit, std::uint64_t bytes, const std::string& what,
                const std::string& remedy)
      : limit_(std::move(limit)), bytes_(bytes) {
    limit_->take(bytes_, what, remedy);
  }
  ~CountedMemory() { limit_->give_back(bytes_); }
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;

 private:
  const std::shared_ptr<MemoryLimit> limit_;
  const std::uint64_t bytes_;
};

}  // namespace kolo::cuda
