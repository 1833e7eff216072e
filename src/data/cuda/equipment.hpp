// SPDX-License-Identifier: Apache-2.0
//
// All that a rank allocates on its device for the batches of all its sets and for messages, and makes anew for nobody.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/cuda/carrier.hpp"
#include "data/cuda/contexts.hpp"
#include "data/cuda/copies.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/cuda/cuda_backend.hpp"
#include "data/cuda/events.hpp"
#include "data/cuda/nccl_carrier.hpp"
#include "data/cuda/tables.hpp"
#include "data/cuda/tenants.hpp"

namespace kolo::cuda {

inline constexpr std::size_t kChunksPerPortion = 4096;

/// A lone collective needs none of the streams here. Members stand in the reverse of the order in which they may be
/// given back. The driver's; the device is current.
class Equipment {
 public:
  /// `has_peers`: the world has more than one rank. Throws Error.
  Equipment(const CudaBackendOptions& options, const std::shared_ptr<MemoryLimit>& limit,
            const PrimaryContextPtr& context, bool has_peers);

  const std::function<void()> ring;  // of its own: it may be left behind when the backend is gone
  const DeviceInfo info;
  const CountedMemory counted;
  std::optional<Tenants::Tenancy> tenancy;  // of one who waits for peers there
  LateStream pack;
  LateStream unpack;
  Bell bell;
  Tables tables;
  std::vector<Event> unpacked;  // by buffer: behind its last use, unless that was on the carrier's stream
  std::vector<const OwnStream*> buffer_users;  // by buffer: the stream of its last use; null: there was none
  std::unique_ptr<Carrier> carrier;
  NcclCarrier* nccl = nullptr;  // the carrier, where it is NCCL
  CopyEquipment messages;
};

}  // namespace kolo::cuda
