// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/nccl_api.hpp"

#include <algorithm>
#include <iterator>

#include <kolo/error.hpp>

#include "data/cuda/device.hpp"

// Memory that NCCL allocates, and registration, came with 2.19.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define KOLO_NCCL_HAS_MEMORY 1
#endif

namespace kolo::cuda {
namespace {

void check(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return;
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

GroupedCalls::GroupedCalls() { check(ncclGroupStart(), "ncclGroupStart"); }

void GroupedCalls::end() {
  open_ = false;
  check(ncclGroupEnd(), "ncclGroupEnd");
}

GroupedCalls::~GroupedCalls() {
  if (open_) forgive(ncclGroupEnd());
}

// ---------------------------------------------------------------- communicators

Communicator::Communicator(const UniqueId& id, int size, int rank) : Communicator() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId raw_id{};
  std::copy(id.begin(), id.end(), std::begin(raw_id.internal));
  check(ncclCommInitRankConfig(&raw_, size, raw_id, rank, &config), "ncclCommInitRankConfig");
}

Communicator::~Communicator() { abort(); }

bool Communicator::settled(CallSite site) {
  if (raw_ == nullptr || !performs("ncclCommGetAsyncError", site)) return true;
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(raw_, &state), "ncclCommGetAsyncError", raw_);
  check(state, "NCCL", raw_);
  return state != ncclInProgress;
}

void Communicator::finalize() {
  if (raw_ == nullptr) return;
  check(ncclCommFinalize(raw_), "ncclCommFinalize", raw_);
}

void Communicator::destroy() {
  if (raw_ != nullptr) check(ncclCommDestroy(std::exchange(raw_, nullptr)), "ncclCommDestroy");
}

void Communicator::abort() noexcept {
  if (raw_ == nullptr) return;
  const ncclComm_t raw = std::exchange(raw_, nullptr);
  if (!is_unloaded()) forgive(ncclCommAbort(raw));
}

void Communicator::all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                              cudaStream_t stream) {
  check(ncclAllReduce(from, to, count, type, op, raw_, stream), "ncclAllReduce", raw_);
}

void Communicator::reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                          cudaStream_t stream) {
  check(ncclReduce(from, to, count, type, op, root, raw_, stream), "ncclReduce", raw_);
}

void Communicator::all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type, cudaStream_t stream) {
  check(ncclAllGather(from, to, count, type, raw_, stream), "ncclAllGather", raw_);
}

void Communicator::broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                             cudaStream_t stream) {
  check(ncclBroadcast(from, to, count, type, root, raw_, stream), "ncclBroadcast", raw_);
}

void Communicator::reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  cudaStream_t stream) {
  check(ncclReduceScatter(from, to, count, type, op, raw_, stream), "ncclReduceScatter", raw_);
}

void Communicator::send(const void* from, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  check(ncclSend(from, count, type, peer, raw_, stream), "ncclSend", raw_);
}

void Communicator::receive(void* to, std::size_t count, ncclDataType_t type, int peer, cudaStream_t stream) {
  check(ncclRecv(to, count, type, peer, raw_, stream), "ncclRecv", raw_);
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
  check(ncclCommRegister(communicator.raw_, memory.data(), memory.size(), &handle_), "ncclCommRegister",
        communicator.raw_);
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
