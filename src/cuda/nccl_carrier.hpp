// SPDX-License-Identifier: Apache-2.0
//
// A step's collectives by NCCL: one group, on a stream of their own, so that the next step is packed meanwhile. Of the
// steps one at a time is being given to NCCL: a non-blocking communicator takes no other call until it has settled.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/carrier.hpp"
#include "cuda/nccl_api.hpp"

namespace kolo::cuda {

class NcclCarrier final : public Carrier {
 public:
  /// Allocates. The device is current.
  NcclCarrier(std::size_t slots, std::size_t slot_bytes, std::chrono::nanoseconds patience);
  /// Begins to connect; `connected` must be true before anything else is called.
  void connect(const UniqueId& id, int rank, int size);
  [[nodiscard]] bool connected();

  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::byte* slot(std::size_t index) const noexcept override { return memory_[index].data(); }
  void collect(const Load& load, const OwnStream& stream) override;
  [[nodiscard]] bool may_carry(const Load& load) override;
  void carry(const Load& load) override;
  [[nodiscard]] bool carried(const Load& load) override;
  void look() override;
  void deliver(const Load& load, const OwnStream& stream) override;
  void abort() noexcept override;
  [[nodiscard]] bool leave() override;

 private:
  void call(const Call& call, std::byte* slot);

  const std::chrono::nanoseconds patience_;
  std::vector<CollectiveMemory> memory_;
  std::vector<Event> packed_;   // by slot
  std::vector<Event> reduced_;  // by slot
  OwnStream stream_;
  std::optional<Communicator> communicator_;
  std::vector<std::unique_ptr<Registration>> registrations_;
  bool unsettled_ = false;
};

/// Whether NCCL has reductions of this type (bool: as bytes of 0 and 1).
[[nodiscard]] bool nccl_reduces(DType dtype) noexcept;

}  // namespace kolo::cuda
