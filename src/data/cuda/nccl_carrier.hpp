// SPDX-License-Identifier: Apache-2.0
//
// A step's collectives by NCCL: one group, on a stream of their own, so that the next step is packed meanwhile. Of the
// steps one at a time is being given to NCCL: a non-blocking communicator takes no other call until it has settled. The
// world has a communicator, and each process set one that was split from it; they are ended together.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "data/cuda/carrier.hpp"
#include "data/cuda/nccl_api.hpp"

namespace kolo::cuda {

class NcclCarrier final : public Carrier {
 public:
  /// Allocates. The device is current.
  NcclCarrier(std::size_t slots, std::size_t slot_bytes, std::chrono::nanoseconds patience);
  /// Begins to connect; `connected` must be true before anything else is called.
  void connect(const UniqueId& id, int rank, int size);
  [[nodiscard]] bool connected();
  /// Begins to make the communicator of a process set out of the world's. All ranks of the world do, at the same place
  /// among their loads, when `may_carry` says so; `place` is this rank's in the set, if it is a member. It lasts until
  /// the carrier leaves.
  void add_set(core::SetId set, std::optional<int> place);

  [[nodiscard]] std::byte* slot(std::size_t index) const noexcept override { return memory_[index].data(); }
  void adopt(const Region& region) override { unregistered_.push_back(&region); }
  void forget(const Region& region) override;
  void collect(const Load& load, const OwnStream& stream) override;
  [[nodiscard]] bool may_carry(const Load& load) override;
  void carry(const Load& load) override;
  [[nodiscard]] bool carried(const Load& load) override;
  void look() override;
  void deliver(const Load& load, const OwnStream& stream) override;
  void abort() noexcept override;
  [[nodiscard]] bool leave() override;

 private:
  void call(const Call& call, Communicator& communicator, std::byte* slot);
  [[nodiscard]] bool settled();
  [[nodiscard]] bool settled_before(base::Time until);

  const std::chrono::nanoseconds patience_;
  std::vector<CollectiveMemory> memory_;
  std::vector<Event> packed_;   // by slot
  std::vector<Event> reduced_;  // by slot
  OwnStream stream_;
  std::optional<Communicator> communicator_;  // the world's
  std::map<core::SetId, std::unique_ptr<Communicator>> sets_;
  std::vector<std::unique_ptr<Registration>> registrations_;  // of the slots
  std::vector<const Region*> unregistered_;
  std::map<const Region*, std::unique_ptr<Registration>> regions_;
  bool unsettled_ = false;
};

/// Whether NCCL has reductions of this type (bool: as bytes of 0 and 1).
[[nodiscard]] bool nccl_reduces(DType dtype) noexcept;

}  // namespace kolo::cuda
