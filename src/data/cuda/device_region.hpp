// SPDX-License-Identifier: Apache-2.0
//
// A GradientArena's memory on the device. A caller's thread asks for it, the driver allocates it while nothing of ours
// runs there, the carrier tells NCCL about it. Whoever lets go of it last frees it, and waits until the device has
// nothing to do; the driver leaves that to a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/mutex.hpp"
#include "core/topology.hpp"
#include "data/cuda/contexts.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/memory_limit.hpp"
#include "data/cuda/nccl_api.hpp"
#include "data/device.hpp"

namespace kolo::cuda {

class Region final : public data::DeviceRegion {
 public:
  /// `members`: the ranks of the world that have one of this number; empty: all.
  Region(PrimaryContextPtr context, std::uint16_t number, std::size_t bytes, std::vector<int> members,
         std::shared_ptr<MemoryLimit> limit)
      : context_(std::move(context)), number_(number), bytes_(bytes), members_(std::move(members)),
        limit_(std::move(limit)) {}
  ~Region() override;

  // data::DeviceRegion; any thread
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] std::byte* memory() const override;
  void note_end(std::size_t offset) override;
  /// TensorSignature::place, 0 for bytes that are not (all) in it.
  [[nodiscard]] std::uint64_t place_of(const std::byte* data, std::size_t bytes) const;
  /// Whether all these ranks of the world have it; empty: all ranks.
  [[nodiscard]] bool is_shared_by(const std::vector<int>& ranks) const {
    return members_.empty() || (!ranks.empty() && core::are_among(ranks, members_));
  }

  // -- the driver, with the device current
  /// Allocates, and gives `stream` the zeroing. Failure is kept for `memory`.
  void allocate(bool for_nccl, cudaStream_t stream) noexcept;
  [[nodiscard]] bool answered() const noexcept { return answered_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_there() const noexcept { return data_.load(std::memory_order_acquire) != nullptr; }
  /// Where it was allocated for NCCL.
  [[nodiscard]] const CollectiveMemory& for_nccl() const noexcept { return nccl_memory_; }

 private:
  const PrimaryContextPtr context_;
  const std::uint16_t number_;
  const std::size_t bytes_;
  const std::vector<int> members_;
  const std::shared_ptr<MemoryLimit> limit_;
  std::optional<CountedMemory> counted_;
  CollectiveMemory nccl_memory_;
  DeviceMemory plain_memory_;  // with NCCL's: as much as can be freed
  Status failure_;             // written before answered_
  std::atomic<std::byte*> data_{nullptr};
  std::atomic<bool> answered_{false};
  mutable base::Mutex mutex_;
  std::set<std::size_t> ends_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::cuda
