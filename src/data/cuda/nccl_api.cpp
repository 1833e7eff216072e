// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nccl_api.hpp"

#include <algorithm>
#include <iterator>
#include <thread>

#include <kolo/error.hpp>

#include "data/cuda/device.hpp"
#include "data/cuda/nccl_calls.hpp"

namespace kolo::cuda {
namespace {

/// The function under a name of the table.
template <class Function>
Function need(Function function, const char* name) {
  if (function != nullptr) return function;
  throw Error(ErrorCode::unsupported, nccl_calls().file + " has no " + name + ": Kolo needs NCCL 2.18 or newer");
}
#define KOLO_NCCL(name) need(nccl_calls().name, "nccl" #name)

void check(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;  // the latter: nothing is known to be wrong yet
  std::string text = std::string(call) + " failed: " + KOLO_NCCL(GetErrorString)(result);
  if (const char* last = KOLO_NCCL(GetLastError)(communicator); last != nullptr && *last != '\0') {
    text += std::string(" (") + last + ")";
  }
  throw Error(ErrorCode::transport, text);
}

/// For what is given back at the end: there is nobody to tell.
void forgive(ncclResult_t /*result*/) noexcept {}

}  // namespace

std::string describe_nccl() {
  const NcclCalls* const calls = opened_nccl();
  if (calls == nullptr || calls->GetVersion == nullptr) return "NCCL not opened";
  int version = 0;
  check(calls->GetVersion(&version), "ncclGetVersion");
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100) + (calls->file.empty() ? "" : " (" + calls->file + ")");
}

UniqueId make_unique_id() {
  ncclUniqueId raw{};
  check(KOLO_NCCL(GetUniqueId)(&raw), "ncclGetUniqueId");
  UniqueId id{};
  std::copy(std::begin(raw.internal), std::end(raw.internal), id.begin());
  return id;
}

// ---------------------------------------------------------------- groups

GroupedCalls::GroupedCalls(Communicator& communicator) : communicator_(communicator) {
  check(KOLO_NCCL(GroupStart)(), "ncclGroupStart");
}

void GroupedCalls::end() {
  open_ = false;
  communicator_.complete(KOLO_NCCL(GroupEnd)(), "ncclGroupEnd");
}

GroupedCalls::~GroupedCalls() {
  if (open_) forgive(nccl_calls().GroupEnd());
}

// ---------------------------------------------------------------- communicators

Communicator::~Communicator() { abort(); }

void Communicator::make(const UniqueId& id, int size, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclUniqueId raw_id{};
  std::copy(id.begin(), id.end(), std::begin(raw_id.internal));
  size_ = size;
  complete(KOLO_NCCL(CommInitRankConfig)(&raw_, size, raw_id, rank, &config), "ncclCommInitRankConfig");
  is_made_.store(true, std::memory_order_release);
}

void Communicator::complete(ncclResult_t result, const char* call) const {
  while (result == ncclInProgress) {
    std::this_thread::yield();
    const ncclResult_t asked = KOLO_NCCL(CommGetAsyncError)(raw(), &result);
    if (asked != ncclSuccess) result = asked;
  }
  check(result, call, __atomic_load_n(&raw_, __ATOMIC_ACQUIRE));
}

ncclComm_t Communicator::raw() const {
  const ncclComm_t raw = __atomic_load_n(&raw_, __ATOMIC_ACQUIRE);
  if (raw == nullptr) throw Error(ErrorCode::transport, "NCCL's communicator has been aborted");
  return raw;
}

void Communicator::look() const {
  const ncclComm_t raw = __atomic_load_n(&raw_, __ATOMIC_ACQUIRE);
  if (raw == nullptr) return;
  ncclResult_t state = ncclSuccess;
  check(KOLO_NCCL(CommGetAsyncError)(raw, &state), "ncclCommGetAsyncError", raw);
  check(state, "NCCL", raw);
}

void Communicator::finalize() { complete(KOLO_NCCL(CommFinalize)(raw()), "ncclCommFinalize"); }

void Communicator::destroy() {
  const ncclComm_t own = __atomic_exchange_n(&raw_, nullptr, __ATOMIC_ACQ_REL);
  if (own != nullptr) check(KOLO_NCCL(CommDestroy)(own), "ncclCommDestroy");
}

bool Communicator::revoke() noexcept {
  const ncclComm_t own = __atomic_load_n(&raw_, __ATOMIC_ACQUIRE);
  if (own == nullptr || !is_made_.load(std::memory_order_acquire) || is_unloaded()) return false;
  return nccl_calls().CommRevoke != nullptr && nccl_calls().CommRevoke(own, 0) == ncclSuccess;
}

void Communicator::abort() noexcept {
  const ncclComm_t own = __atomic_exchange_n(&raw_, nullptr, __ATOMIC_ACQ_REL);
  if (own == nullptr || is_unloaded() || nccl_calls().CommAbort == nullptr) return;
  forgive(nccl_calls().CommAbort(own));
}

void Communicator::all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                              cudaStream_t stream) {
  complete(KOLO_NCCL(AllReduce)(from, to, count, type, op, raw(), stream), "ncclAllReduce");
}

void Communicator::reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                          cudaStream_t stream) {
  complete(KOLO_NCCL(Reduce)(from, to, count, type, op, root, raw(), stream), "ncclReduce");
}

void Communicator::all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type, cudaStream_t stream) {
  complete(KOLO_NCCL(AllGather)(from, to, count, type, raw(), stream), "ncclAllGather");
}

void Communicator::broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                             cudaStream_t stream) {
  complete(KOLO_NCCL(Broadcast)(from, to, count, type, root, raw(), stream), "ncclBroadcast");
}

void Communicator::reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  cudaStream_t stream) {
  complete(KOLO_NCCL(ReduceScatter)(from, to, count, type, op, raw(), stream), "ncclReduceScatter");
}

void Communicator::all_to_all(const void* from, void* to, std::size_t count, cudaStream_t stream) {
  constexpr ncclDataType_t type = ncclUint8;
  if (nccl_calls().AlltoAll != nullptr) {
    return complete(nccl_calls().AlltoAll(from, to, count, type, raw(), stream), "ncclAlltoAll");
  }
  GroupedCalls group(*this);
  for (int peer = 0; peer < size_; ++peer) {
    send(static_cast<const std::byte*>(from) + static_cast<std::size_t>(peer) * count, count, type, peer, stream);
    receive(static_cast<std::byte*>(to) + static_cast<std::size_t>(peer) * count, count, type, peer, stream);
  }
  group.end();
}

void Communicator::send(const void* from, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  complete(KOLO_NCCL(Send)(from, count, type, peer, raw(), stream), "ncclSend");
}

void Communicator::receive(void* to, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  complete(KOLO_NCCL(Recv)(to, count, type, peer, raw(), stream), "ncclRecv");
}

// ---------------------------------------------------------------- memory

CollectiveMemory::CollectiveMemory(std::size_t bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  if (nccl_calls().MemAlloc != nullptr) {
    check(nccl_calls().MemAlloc(&memory, bytes), "ncclMemAlloc");
  } else if (const cudaError_t result = cudaMalloc(&memory, bytes); result != cudaSuccess) {
    throw Error(ErrorCode::transport, std::string("cudaMalloc failed: ") + cudaGetErrorString(result));
  }
  hold(memory, bytes);
}

void FreeCollective::operator()(std::byte* memory) const noexcept {
  if (is_unloaded()) return;
  if (nccl_calls().MemFree != nullptr) {
    forgive(nccl_calls().MemFree(memory));
  } else {
    static_cast<void>(cudaFree(memory));
  }
}

Registration::Registration(Communicator& communicator, const CollectiveMemory& memory) : communicator_(communicator) {
  if (nccl_calls().CommRegister == nullptr) return;
  communicator.complete(nccl_calls().CommRegister(communicator.raw(), memory.data(), memory.size(), &handle_),
                        "ncclCommRegister");
}

Registration::~Registration() {
  if (handle_ != nullptr && communicator_.raw_ != nullptr && !is_unloaded()) {
    forgive(nccl_calls().CommDeregister(communicator_.raw_, handle_));
  }
}

}  // namespace kolo::cuda
