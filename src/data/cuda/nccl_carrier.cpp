// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nccl_carrier.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <thread>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/clock.hpp"

namespace kolo::cuda {
namespace {

/// By DType; nothing: NCCL has no such type.
constexpr std::array<std::optional<ncclDataType_t>, kDTypeCount> kNcclTypes{
    ncclUint8,  ncclInt8,   std::nullopt, ncclInt32,    ncclInt64,   ncclUint8,  std::nullopt,
    ncclUint32, ncclUint64, ncclFloat16,  ncclBfloat16, ncclFloat32, ncclFloat64};
/// By ReduceOp, but for those that work on bits.
constexpr std::array<ncclRedOp_t, 5> kNcclOps{ncclSum, ncclAvg, ncclMin, ncclMax, ncclProd};

std::optional<ncclDataType_t> nccl_type(DType dtype) noexcept { return kNcclTypes[static_cast<std::size_t>(dtype)]; }

ncclRedOp_t nccl_op(ReduceOp op) {
  KOLO_CHECK(op <= ReduceOp::product) << "NCCL has no operation " << to_string(op);
  return kNcclOps[static_cast<std::size_t>(op)];
}

}  // namespace

bool nccl_reduces(DType dtype) noexcept { return nccl_type(dtype).has_value(); }

NcclCarrier::NcclCarrier(std::size_t slots, std::size_t slot_bytes, std::chrono::nanoseconds patience)
    : device_(current_device()), patience_(patience), packed_(slots), reduced_(slots) {
  memory_.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) memory_.emplace_back(slot_bytes);
}

NcclLink& NcclCarrier::connect(const UniqueId& id, int rank, int size) {
  links_.push_back(std::make_unique<NcclLink>(id, rank, size));
  return *links_.back();
}

bool NcclCarrier::connected(NcclLink& link) {
  while (link.communicator.settled()) {
    if (!register_next(link)) return true;
  }
  return false;
}

bool NcclCarrier::end(NcclLink& link) {
  if (!link.ends) {
    link.regions.clear();
    link.slots.clear();
    link.communicator.finalize();
    link.ends = true;
  }
  if (!link.communicator.settled()) return false;
  link.communicator.destroy();
  links_.erase(std::find_if(links_.begin(), links_.end(), [&](const auto& known) { return known.get() == &link; }));
  return true;
}

/// Tells the communicator, which has settled, of memory that it has not been told of; false: there is none.
bool NcclCarrier::register_next(NcclLink& link) {
  if (link.slots.size() < memory_.size()) {
    link.slots.push_back(std::make_unique<Registration>(link.communicator, memory_[link.slots.size()]));
    return true;
  }
  for (const Region* region : regions_) {
    std::unique_ptr<Registration>& known = link.regions[region];
    if (known) continue;
    known = std::make_unique<Registration>(link.communicator, region->for_nccl());
    return true;
  }
  return false;
}

void NcclCarrier::adopt(const Region& region) {
  regions_.push_back(&region);
  regions_are_new_ = true;
}

void NcclCarrier::forget(const Region& region) {
  regions_.erase(std::remove(regions_.begin(), regions_.end(), &region), regions_.end());
  for (const auto& link : links_) link->regions.erase(&region);
}

void NcclCarrier::collect(const Load& load, const OwnStream& stream) {
  packed_[load.slot].record(stream.raw());
  packed_[load.slot].hold_back(stream_.raw());
}

bool NcclCarrier::may_carry(const Load& load) {
  while (carried(load)) {
    if (!regions_are_new_) return true;
    const auto told =
        std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return register_next(*link); });
    regions_are_new_ = told != links_.end();
    if (regions_are_new_) unsettled_ = told->get();
  }
  return false;
}

void NcclCarrier::carry(const Load& load) {
  if (load.step->calls.empty()) return;
  GroupedCalls calls;
  for (const Call& one : load.step->calls) call(one, load.set->link->communicator, load.memory);
  calls.end();
  unsettled_ = load.set->link;
}

bool NcclCarrier::carried(const Load& load) {
  NcclLink* const asked = unsettled_ != nullptr ? unsettled_ : load.set->link;
  if (!asked->communicator.settled()) return false;
  unsettled_ = nullptr;
  return true;
}

/// All of them are asked, whatever the first says: each may have an error to tell of.
bool NcclCarrier::all_settled() {
  bool all = true;
  for (const auto& link : links_) all = link->communicator.settled() && all;
  return all;
}

/// Of a peer that is lost while a collective runs on the device NCCL tells only who asks.
void NcclCarrier::look() { static_cast<void>(all_settled()); }

void NcclCarrier::deliver(const Load& load, const OwnStream& stream) {
  reduced_[load.slot].record(stream_.raw());
  reduced_[load.slot].hold_back(stream.raw());
}

void NcclCarrier::call(const Call& call, Communicator& communicator, std::byte* slot) {
  const std::byte* from = call.from != nullptr ? call.from : slot + call.offset;
  std::byte* to = call.to != nullptr ? call.to : slot + call.offset;
  const std::optional<ncclDataType_t> type = nccl_type(call.dtype);
  KOLO_CHECK(type) << "NCCL has no " << to_string(call.dtype);
  switch (call.kind) {
  case Call::Kind::all_reduce:
    communicator.all_reduce(from, to, call.count, *type, nccl_op(call.op), stream_.raw());
    return;
  case Call::Kind::reduce:
    communicator.reduce(from, to, call.count, *type, nccl_op(call.op), call.peer, stream_.raw());
    return;
  case Call::Kind::broadcast:
    communicator.broadcast(from, to, call.count, *type, call.peer, stream_.raw());
    return;
  case Call::Kind::all_gather:
    communicator.all_gather(from, to, call.count, *type, stream_.raw());
    return;
  case Call::Kind::reduce_scatter:
    communicator.reduce_scatter(from, to, call.count, *type, nccl_op(call.op), stream_.raw());
    return;
  case Call::Kind::send:
    communicator.send(from, call.count, *type, call.peer, stream_.raw());
    return;
  case Call::Kind::receive:
    communicator.receive(to, call.count, *type, call.peer, stream_.raw());
    return;
  }
  KOLO_UNREACHABLE();
}

/// To end a communicator NCCL frees memory, which waits for the kernels of the others, too: so each has a thread, and
/// all hear of the end before one waits.
void NcclCarrier::abort() noexcept {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < links_.size(); ++i) {
    try {
      threads.emplace_back([this, &communicator = links_[i]->communicator] {
        try {
          const DeviceGuard guard(device_);
          communicator.abort();
        } catch (const Error&) {
          communicator.abort();  // the device has failed: there is nothing that a guard would help against
        }
      });
    } catch (const std::exception&) {
      break;  // no thread can be had: one after another, below
    }
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (i == 0 || i > threads.size()) links_[i]->communicator.abort();
  }
  for (std::thread& thread : threads) thread.join();
  links_.clear();
  unsettled_ = nullptr;
  try {
    stream_.synchronize();
  } catch (const Error&) {
    // The device has failed: it runs nothing any more, either.
  }
}

bool NcclCarrier::leave() {
  const base::Time until = base::now() + patience_;
  if (!all_settled_before(until)) return false;
  for (const auto& link : links_) {
    link->regions.clear();
    link->slots.clear();
    if (!link->ends) link->communicator.finalize();
    link->ends = true;
  }
  if (!all_settled_before(until)) return false;
  for (const auto& link : links_) link->communicator.destroy();
  links_.clear();
  return true;
}

bool NcclCarrier::all_settled_before(base::Time until) {
  while (!all_settled()) {
    if (base::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace kolo::cuda
