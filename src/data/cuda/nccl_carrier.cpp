// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nccl_carrier.hpp"

#include <algorithm>
#include <thread>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/clock.hpp"

namespace kolo::cuda {
namespace {

std::optional<ncclDataType_t> nccl_type(DType dtype) noexcept {
  switch (dtype) {
  case DType::int8:
    return ncclInt8;
  case DType::boolean:
  case DType::uint8:
    return ncclUint8;
  case DType::int32:
    return ncclInt32;
  case DType::uint32:
    return ncclUint32;
  case DType::int64:
    return ncclInt64;
  case DType::uint64:
    return ncclUint64;
  case DType::float16:
    return ncclFloat16;
  case DType::bfloat16:
    return ncclBfloat16;
  case DType::float32:
    return ncclFloat32;
  case DType::float64:
    return ncclFloat64;
  case DType::int16:
  case DType::uint16:
    break;
  }
  return std::nullopt;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
  case ReduceOp::sum:
    return ncclSum;
  case ReduceOp::min:
    return ncclMin;
  case ReduceOp::max:
    return ncclMax;
  case ReduceOp::product:
    return ncclProd;
  case ReduceOp::average:
    return ncclAvg;
  case ReduceOp::bit_and:
  case ReduceOp::bit_or:
  case ReduceOp::bit_xor:
    break;
  }
  KOLO_UNREACHABLE();
}

}  // namespace

bool nccl_reduces(DType dtype) noexcept { return nccl_type(dtype).has_value(); }

NcclCarrier::NcclCarrier(std::size_t slots, std::size_t slot_bytes, std::chrono::nanoseconds patience)
    : patience_(patience), packed_(slots), reduced_(slots) {
  memory_.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) memory_.emplace_back(slot_bytes);
}

void NcclCarrier::connect(const UniqueId& id, int rank, int size) { communicator_.emplace(id, size, rank); }

bool NcclCarrier::connected() {
  while (communicator_->settled()) {
    if (registrations_.size() == memory_.size()) return true;
    registrations_.push_back(std::make_unique<Registration>(*communicator_, memory_[registrations_.size()]));
  }
  return false;
}

void NcclCarrier::add_set(core::SetId set, std::optional<int> place) {
  KOLO_CHECK(set != core::kGlobalSet && sets_.count(set) == 0) << "process set " << set;
  std::optional<int> color;
  if (place) color = 0;
  sets_[set] = std::make_unique<Communicator>(*communicator_, color, place.value_or(0));
  unsettled_ = true;
}

void NcclCarrier::collect(const Load& load, const OwnStream& stream) {
  packed_[load.slot].record(stream.raw());
  packed_[load.slot].hold_back(stream_.raw());
}

bool NcclCarrier::may_carry(const Load& load) {
  while (carried(load)) {
    if (unregistered_.empty()) return true;
    const Region* const region = unregistered_.back();
    unregistered_.pop_back();
    regions_[region] = std::make_unique<Registration>(*communicator_, region->for_nccl());
    unsettled_ = true;
  }
  return false;
}

void NcclCarrier::forget(const Region& region) {
  unregistered_.erase(std::remove(unregistered_.begin(), unregistered_.end(), &region), unregistered_.end());
  regions_.erase(&region);
}

void NcclCarrier::carry(const Load& load) {
  if (load.step->calls.empty()) return;
  const auto own = sets_.find(load.set);
  KOLO_CHECK(load.set == core::kGlobalSet || own != sets_.end()) << "process set " << load.set;
  Communicator& communicator = load.set == core::kGlobalSet ? *communicator_ : *own->second;
  GroupedCalls calls;
  for (const Call& one : load.step->calls) call(one, communicator, load.memory);
  calls.end();
  unsettled_ = true;
}

bool NcclCarrier::carried(const Load& /*load*/) {
  if (settled()) unsettled_ = false;
  return !unsettled_;
}

/// All of them are asked, whatever the first says: each may have an error to tell of.
bool NcclCarrier::settled() {
  bool all = communicator_->settled();
  for (const auto& [set, communicator] : sets_) all = communicator->settled() && all;
  return all;
}

/// Of a peer that is lost while a collective runs on the device NCCL tells only who asks.
void NcclCarrier::look() { static_cast<void>(carried({})); }

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

void NcclCarrier::abort() noexcept {
  if (!communicator_) return;
  for (const auto& [set, communicator] : sets_) communicator->abort();
  communicator_->abort();
  regions_.clear();
  registrations_.clear();
  sets_.clear();
  communicator_.reset();
  try {
    stream_.synchronize();
  } catch (const Error&) {
    // The device has failed: it runs nothing any more, either.
  }
}

bool NcclCarrier::leave() {
  if (!communicator_) return true;
  const base::Time until = base::now() + patience_;
  if (!settled_before(until)) return false;
  regions_.clear();
  registrations_.clear();
  for (const auto& [set, communicator] : sets_) communicator->finalize();
  if (!settled_before(until)) return false;
  for (const auto& [set, communicator] : sets_) communicator->destroy();
  communicator_->finalize();
  if (!settled_before(until)) return false;
  communicator_->destroy();
  return true;
}

bool NcclCarrier::settled_before(base::Time until) {
  while (!settled()) {
    if (base::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace kolo::cuda
