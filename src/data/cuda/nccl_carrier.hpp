// SPDX-License-Identifier: Apache-2.0
//
// A portion's collectives by NCCL: one group, on a stream of their own, so that the next portion is packed meanwhile.
// Each process set has a communicator.
//
// Order. A communicator has one of two streams, so that collectives of two sets (tensor-parallel and data-parallel
// ones, say) run side by side. On each rank a stream runs portions in the order in which they are carried, which is the
// log's. So the oldest collective that is not over is first in its stream on all of its ranks, and finds room there if
// a device has room for two kernels of NCCL's: it is over some time, whatever others occupy meanwhile. With a stream
// for each set a device could be full of kernels that wait for ranks whose devices are full of others.
//
// Messages. Each direction of a pair of ranks has a communicator and a stream of its own. A message may wait there for
// long, for what its sender's stream has to do first; nothing but later messages of this direction waits behind it. So
// a device needs room for as many kernels more as there are directions with a message under way. They have their places
// in the log, too: what a kernel waits for, a message on the way here or a collective, has an earlier one, on every
// rank.
//
// Threads. A call into NCCL may wait for other ranks: where a communicator is made or ended, and where NCCL connects,
// which it does for the first collective of each kind and size. One of them may be dead. Such calls are made by a
// thread of their own, the *worker*, one at a time, while the driver goes on with everything else: `is_idle` says when
// it is done. A portion of a form that the communicator has carried before waits for nobody; the driver gives it
// itself.
//
// Making and ending a communicator allocates and frees memory of the device, which waits for what runs there, and may
// wait for the peers: it is done while nothing of ours is on the device (CudaBackend).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "data/cuda/carrier.hpp"
#include "data/cuda/contexts.hpp"
#include "data/cuda/nccl_api.hpp"
#include "data/cuda/worker.hpp"

namespace kolo::cuda {

/// A process set's communicator, and the memory that it has been told of.
struct NcclLink {
  std::vector<int> members;      ///< as ranks of the world; empty: all
  std::optional<OwnStream> own;  ///< of a pair's
  const OwnStream* stream = nullptr;
  Communicator communicator;
  std::vector<std::unique_ptr<Registration>> buffers;
  std::map<const Region*, std::unique_ptr<Registration>> regions;
  std::unordered_set<std::uint64_t> forms;  ///< of the portions and messages that it has carried
  Status failure;                           ///< why it could not be made
  base::Time since{};                       ///< when that began, or was given up last
  bool is_given_up = false;                 ///< so the failure is no news of this rank's
  enum class Stage : std::uint8_t { making, made, ending, ended } stage = Stage::making;  ///< the driver's
};

class NcclCarrier final : public Carrier {
 public:
  /// Allocates. The device is current. `ring` wakes the engine when the worker has done something.
  NcclCarrier(PrimaryContextPtr context, std::size_t buffers, std::size_t buffer_bytes,
              std::chrono::nanoseconds patience, const std::function<void()>& ring);
  ~NcclCarrier() override;
  /// Begins to make the communicator of a set, by an id that one of its ranks has brought: all of them do, while no
  /// load is under way. It lasts until `end`, or until the carrier leaves.
  [[nodiscard]] NcclLink& connect(const UniqueId& id, const data::DeviceSet& set);
  /// Whether it has been made, or could not be (NcclLink::failure). No load of the set is carried before.
  [[nodiscard]] bool connected(NcclLink& link);
  /// It takes too long: some rank may never come, as NCCL has failed there, and NCCL waits for ever. Fails soon.
  void give_up(NcclLink& link);
  /// Ends it, together with its other ranks, while no load is under way: to be called until it is true; then the link
  /// is no more. `in_peace`: false where not all ranks have it.
  [[nodiscard]] bool end(NcclLink& link, bool in_peace = true);

  [[nodiscard]] const OwnStream* stream(const Load& load) const noexcept override { return load.set->link->stream; }
  [[nodiscard]] std::byte* buffer(std::size_t index) const noexcept override { return memory_[index].data(); }
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
  [[nodiscard]] const OwnStream& choose_stream() const;
  void give(const Load& load);
  static void call(const Call& call, NcclLink& link, std::byte* buffer);
  [[nodiscard]] bool is_new(const Load& load);
  [[nodiscard]] std::uint64_t form_of(const Load& load) const noexcept;
  [[nodiscard]] std::uint64_t form_of(const Call& call, const Load& load) const noexcept;
  void tell_of_memory(NcclLink& link);
  static void end_in_peace(NcclLink& link);

  // -- the worker
  void hand_over(std::function<void()> task);
  void work(const std::function<void()>& task) noexcept;
  /// Throws what the last task has thrown.
  [[nodiscard]] bool is_idle();
  [[nodiscard]] bool is_idle_by(base::Time until);
  void end_live_call() noexcept;
  void abort_all() noexcept;

  const PrimaryContextPtr context_;
  const std::chrono::nanoseconds patience_;
  const std::function<void()>& ring_;
  std::vector<CollectiveMemory> memory_;
  std::vector<Event> packed_;   // by buffer
  std::vector<Event> reduced_;  // by buffer
  std::array<OwnStream, 2> streams_;
  std::vector<std::shared_ptr<NcclLink>> links_;  // a task of the aborter may outlive its place here
  std::vector<const Region*> regions_;
  bool regions_are_new_ = false;  // to some link

  base::Mutex mutex_;
  base::ConditionVariable changed_;
  bool aborted_ KOLO_GUARDED_BY(mutex_) = false;  // the worker begins nothing any more
  std::atomic<bool> busy_{false};                 // the worker has a task
  Status failure_;                                // of the last one, written before `busy_`
  Worker aborter_;
  Worker worker_;  // these last: they end before all that they use
};

/// Whether NCCL has reductions of this type (bool: as bytes of 0 and 1).
[[nodiscard]] bool nccl_reduces(DType dtype) noexcept;

}  // namespace kolo::cuda
