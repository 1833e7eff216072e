// SPDX-License-Identifier: Apache-2.0
//
// A step's collectives by NCCL: one group, on a stream of their own, so that the next step is packed meanwhile. Each
// process set has a communicator.
//
// Order. All communicators share the stream, and one step at a time is being given to NCCL: a communicator puts its
// kernels on the stream only when it has settled, and those of another would overtake them. So the kernels of all sets
// run one after another, on each rank in the order in which the steps are carried, which is the log's. Then none can
// wait for a rank whose device is occupied by one that waits for this rank.
//
// Making and ending a communicator allocates and frees memory of the device, which waits for what runs there, and may
// wait for the peers: it is done while nothing of ours is on the device (CudaBackend).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "data/cuda/carrier.hpp"
#include "data/cuda/nccl_api.hpp"

namespace kolo::cuda {

/// A process set's communicator, and the memory that it has been told of.
struct NcclLink {
  NcclLink(const UniqueId& id, int rank, int size) : communicator(id, size, rank) {}
  Communicator communicator;
  std::vector<std::unique_ptr<Registration>> slots;
  std::map<const Region*, std::unique_ptr<Registration>> regions;
  bool ends = false;
};

class NcclCarrier final : public Carrier {
 public:
  /// Allocates. The device is current.
  NcclCarrier(std::size_t slots, std::size_t slot_bytes, std::chrono::nanoseconds patience);
  /// Begins to make the communicator of a set, by an id that one of its ranks has brought: all of them do, while no
  /// load is under way. No load of the set is carried before `connected`. It lasts until `end`, or until the carrier
  /// leaves.
  [[nodiscard]] NcclLink& connect(const UniqueId& id, int rank, int size);
  [[nodiscard]] bool connected(NcclLink& link);
  /// Ends it, together with its other ranks, while no load is under way: to be called until it is true; then the link
  /// is no more.
  [[nodiscard]] bool end(NcclLink& link);

  [[nodiscard]] std::byte* slot(std::size_t index) const noexcept override { return memory_[index].data(); }
  void adopt(const Region& region) override;
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
  [[nodiscard]] bool register_next(NcclLink& link);
  [[nodiscard]] bool all_settled();
  [[nodiscard]] bool all_settled_before(base::Time until);

  const int device_;
  const std::chrono::nanoseconds patience_;
  std::vector<CollectiveMemory> memory_;
  std::vector<Event> packed_;   // by slot
  std::vector<Event> reduced_;  // by slot
  OwnStream stream_;
  std::vector<std::unique_ptr<NcclLink>> links_;
  NcclLink* unsettled_ = nullptr;  // the one of them that has been called last, until it has settled
  std::vector<const Region*> regions_;
  bool regions_are_new_ = false;  // to some link
};

/// Whether NCCL has reductions of this type (bool: as bytes of 0 and 1).
[[nodiscard]] bool nccl_reduces(DType dtype) noexcept;

}  // namespace kolo::cuda
