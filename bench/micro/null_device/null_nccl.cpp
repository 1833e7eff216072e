// SPDX-License-Identifier: Apache-2.0
//
// The NCCL of null_device.hpp.
#include <atomic>
#include <cstdlib>

#include <nccl.h>

#include "null_device.hpp"
#include "tests/emulated_cuda/newer_nccl.hpp"

namespace {

std::atomic<std::size_t> all_reduces{0};

void* const kHandle = &all_reduces;  // of whatever is asked for: nobody looks behind it

}  // namespace

std::size_t kolo_bench::nccl_all_reduces() noexcept { return all_reduces.load(std::memory_order_relaxed); }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t /*result*/) { return "no error"; }
const char* ncclGetLastError(ncclComm_t /*communicator*/) { return ""; }

// ---------------------------------------------------------------- communicators

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int /*ranks*/, ncclUniqueId /*id*/, int /*rank*/,
                                    ncclConfig_t* /*config*/) {
  *communicator = static_cast<ncclComm_t>(kHandle);
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t /*communicator*/) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t /*communicator*/) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t /*communicator*/) { return ncclSuccess; }
ncclResult_t ncclCommRevoke(ncclComm_t /*communicator*/, int /*flags*/) { return ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*communicator*/, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  std::free(memory);
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(ncclComm_t /*communicator*/, void* /*memory*/, std::size_t /*bytes*/, void** handle) {
  *handle = kHandle;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t /*communicator*/, void* /*handle*/) { return ncclSuccess; }

// ---------------------------------------------------------------- collectives and messages

ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }
ncclResult_t ncclAllReduce(const void* /*from*/, void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                           ncclRedOp_t /*op*/, ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  // One thread at a time calls NCCL, so no locked instruction is needed.
  all_reduces.store(all_reduces.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return ncclSuccess;
}
ncclResult_t ncclReduce(const void* /*from*/, void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                        ncclRedOp_t /*op*/, int /*root*/, ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void* /*from*/, void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                           int /*root*/, ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void* /*from*/, void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                           ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void* /*from*/, void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                               ncclRedOp_t /*op*/, ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclAlltoAll(const void* /*from*/, void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                          ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* /*from*/, std::size_t /*count*/, ncclDataType_t /*type*/, int /*peer*/,
                      ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* /*to*/, std::size_t /*count*/, ncclDataType_t /*type*/, int /*peer*/,
                      ncclComm_t /*communicator*/, cudaStream_t /*stream*/) {
  return ncclSuccess;
}
