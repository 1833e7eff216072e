// SPDX-License-Identifier: Apache-2.0
//
// A portion's collectives by the CPU: what is packed is copied into pinned memory, brought around the ranks by their
// set's data plane of the CPU, and copied back. Each buffer is at another stage: while one is copied, another is
// reduced. For machines where NCCL does not work, and for several ranks on one GPU.
#pragma once

#include <vector>

#include "data/cuda/carrier.hpp"
#include "data/cuda/events.hpp"

namespace kolo::cuda {

class StagedCarrier final : public Carrier {
 public:
  /// Allocates. The device is current. The bell wakes the engine when a portion's copy into pinned memory is done.
  StagedCarrier(std::size_t buffers, std::size_t buffer_bytes, const Bell& bell);

  [[nodiscard]] std::byte* buffer(std::size_t index) const noexcept override { return memory_[index].data(); }
  void adopt(const Region& /*region*/) override {}
  void forget(const Region& /*region*/) override {}
  void collect(const Load& load, const OwnStream& stream) override;
  [[nodiscard]] bool may_carry(const Load& load) override;
  void carry(const Load& load) override;
  [[nodiscard]] bool carried(const Load& load) override { return !under_way_[load.buffer]; }
  void look() override {}  // the planes' own progress throws
  void deliver(const Load& load, const OwnStream& stream) override;
  void abort() noexcept override {}  // the planes are aborted by their owner
  [[nodiscard]] bool leave() override { return true; }

 private:
  const Bell& bell_;
  std::vector<DeviceMemory> memory_;
  std::vector<PinnedMemory> pinned_;
  std::vector<Event> collected_;
  std::vector<data::Job> jobs_;
  std::vector<bool> under_way_;
};

}  // namespace kolo::cuda
