// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nccl_api.hpp"

#include <algorithm>
#include <iterator>
#include <thread>

#include <kolo/error.hpp>

#include "data/cuda/device.hpp"

// Memory that NCCL allocates, and registration, came with 2.19.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define KOLO_NCCL_HAS_MEMORY 1
#endif

namespace kolo::cuda {
namespace {

void check(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;  // the latter: nothing is known to be wrong yet
  std::string text = std::string(call) + " failed: " + ncclGetErrorString(result);
  if (const char* last = ncclGetLastError(communicator); last != nullptr && *last != '\0') {
    text += std::string(" (") + last + ")";
  }
  throw Error(ErrorCode::transport, text);
}

/// For what is given back at the end: there is nobody to tell.
void forgive(ncclResult_t /*result*/) noexcept {}

}  // namespace

std::string nccl_version() {
  int version = 0;
  check(ncclGetVersion(&version), "ncclGetVersion");
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

UniqueId make_unique_id() {
  ncclUniqueId raw{};
  check(ncclGetUniqueId(&raw), "ncclGetUniqueId");
  UniqueId id{};
  std::copy(std::begin(raw.internal), std::end(raw.internal), id.begin());
  return id;
}

// ---------------------------------------------------------------- groups

GroupedCalls::GroupedCalls(Communicator& communicator) : communicator_(communicator) {
  check(ncclGroupStart(), "ncclGroupStart");
}

void GroupedCalls::end() {
  open_ = false;
  communicator_.complete(ncclGroupEnd(), "ncclGroupEnd");
}

GroupedCalls::~GroupedCalls() {
  if (open_) forgive(ncclGroupEnd());
}

// ---------------------------------------------------------------- communicators

Communicator::~Communicator() { abort(); }

void Communicator::make(const UniqueId& id, int size, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclUniqueId raw_id{};
  std::copy(id.begin(), id.end(), std::begin(raw_id.internal));
  complete(ncclCommInitRankConfig(&raw_, size, raw_id, rank, &config), "ncclCommInitRankConfig");
}

void Communicator::complete(ncclResult_t result, const char* call) const {
  while (result == ncclInProgress) {
    std::this_thread::yield();
    const ncclResult_t asked = ncclCommGetAsyncError(raw(), &result);
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
  check(ncclCommGetAsyncError(raw, &state), "ncclCommGetAsyncError", raw);
  check(state, "NCCL", raw);
}

void Communicator::finalize() { complete(ncclCommFinalize(raw()), "ncclCommFinalize"); }

void Communicator::destroy() {
  const ncclComm_t own = __atomic_exchange_n(&raw_, nullptr, __ATOMIC_ACQ_REL);
  if (own != nullptr) check(ncclCommDestroy(own), "ncclCommDestroy");
}

void Communicator::abort() noexcept {
  const ncclComm_t own = __atomic_exchange_n(&raw_, nullptr, __ATOMIC_ACQ_REL);
  if (own != nullptr && !is_unloaded()) forgive(ncclCommAbort(own));
}

void Communicator::all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                              cudaStream_t stream) {
  complete(ncclAllReduce(from, to, count, type, op, raw(), stream), "ncclAllReduce");
}

void Communicator::reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                          cudaStream_t stream) {
  complete(ncclReduce(from, to, count, type, op, root, raw(), stream), "ncclReduce");
}

void Communicator::all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type, cudaStream_t stream) {
  complete(ncclAllGather(from, to, count, type, raw(), stream), "ncclAllGather");
}

void Communicator::broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                             cudaStream_t stream) {
  complete(ncclBroadcast(from, to, count, type, root, raw(), stream), "ncclBroadcast");
}

void Communicator::reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  cudaStream_t stream) {
  complete(ncclReduceScatter(from, to, count, type, op, raw(), stream), "ncclReduceScatter");
}

void Communicator::send(const void* from, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  complete(ncclSend(from, count, type, peer, raw(), stream), "ncclSend");
}

void Communicator::receive(void* to, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  complete(ncclRecv(to, count, type, peer, raw(), stream), "ncclRecv");
}

// ---------------------------------------------------------------- memory

CollectiveMemory::CollectiveMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
#ifdef KOLO_NCCL_HAS_MEMORY
  check(ncclMemAlloc(&raw_, bytes), "ncclMemAlloc");
#else
  check(cudaMalloc(&raw_, bytes), "cudaMalloc");
#endif
}

CollectiveMemory::~CollectiveMemory() {
  if (raw_ == nullptr || is_unloaded()) return;
#ifdef KOLO_NCCL_HAS_MEMORY
  forgive(ncclMemFree(raw_));
#else
  static_cast<void>(cudaFree(raw_));
#endif
}

Registration::Registration(Communicator& communicator, const CollectiveMemory& memory) : communicator_(communicator) {
#ifdef KOLO_NCCL_HAS_MEMORY
  communicator.complete(ncclCommRegister(communicator.raw(), memory.data(), memory.size(), &handle_),
                        "ncclCommRegister");
#else
  static_cast<void>(memory);
#endif
}

Registration::~Registration() {
#ifdef KOLO_NCCL_HAS_MEMORY
  if (handle_ != nullptr && communicator_.raw_ != nullptr && !is_unloaded()) {
    forgive(ncclCommDeregister(communicator_.raw_, handle_));
  }
#endif
}

}  // namespace kolo::cuda
