// SPDX-License-Identifier: Apache-2.0
//
// What brings a packed portion around the ranks: NCCL, or the CPU by way of pinned memory. The pipeline
// (cuda_backend.hpp) packs, asks the carrier in the order of portions, and unpacks.
#pragma once

#include <cstddef>
#include <string>

#include "data/cuda/cuda_api.hpp"
#include "data/cuda/device_region.hpp"
#include "data/cuda/device_times.hpp"
#include "data/cuda/portions.hpp"
#include "data/cuda/set_on_device.hpp"

namespace kolo::cuda {

/// A portion in one of the buffers.
struct Load {
  SetOnDevice* set = nullptr;  ///< whose ranks take part
  const Portion* portion = nullptr;
  std::size_t buffer = 0;
  std::byte* memory = nullptr;  ///< the buffer's, on the device
  bool alone = false;           ///< packed and unpacked by the carrier's own stream
  Stamps* stamps = nullptr;     ///< around what `carry` gives; null: it is not timed
};

/// The driver's, with the device current; `abort` apart.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// On which the load's collectives run: what is given to it comes behind all loads of its set that have been carried.
  /// Null: there is none.
  [[nodiscard]] virtual const OwnStream* stream(const Load& /*load*/) const noexcept { return nullptr; }
  /// Memory for a buffer, and the host's part of it.
  [[nodiscard]] virtual std::byte* buffer(std::size_t index) const noexcept = 0;
  /// Makes the most of memory that callers' tensors will lie in, from the next load on; until `forget`, which is called
  /// when no load is under way.
  virtual void adopt(const Region& region) = 0;
  virtual void forget(const Region& region) = 0;
  /// Called right after the pack was given to `stream`, to give it whatever must follow at once; not for one `alone`,
  /// nor `deliver`.
  virtual void collect(const Load& load, const OwnStream& stream) = 0;
  /// Whether `carry` may be called for this load now; loads go in order.
  [[nodiscard]] virtual bool may_carry(const Load& load) = 0;
  virtual void carry(const Load& load) = 0;
  /// Whether it has been carried so far that the rest can be given to a stream.
  [[nodiscard]] virtual bool carried(const Load& load) = 0;
  /// Notices what went wrong, here or at a peer, with what is on the device already. Throws Error (transport).
  virtual void look() = 0;
  /// Gives `stream` what must come before the unpack.
  virtual void deliver(const Load& load, const OwnStream& stream) = 0;
  /// Ends what is under way, so that every stream runs dry. Any thread.
  virtual void abort() noexcept = 0;
  /// Leaves in peace; all loads have been carried, on the device, too. False when it could not.
  [[nodiscard]] virtual bool leave() = 0;
};

}  // namespace kolo::cuda
