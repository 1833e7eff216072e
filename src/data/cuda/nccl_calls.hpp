// SPDX-License-Identifier: Apache-2.0
//
// The calls of NCCL that Kolo makes, as a table. Kolo links no NCCL: device/nccl_library.cpp opens one and fills the
// table, and the tests put an emulated one in its place (device.hpp). A call that the library does not have is null.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

namespace kolo::cuda {

// Those after CommAbort came with NCCL 2.19, AlltoAll and CommRevoke with 2.28 and a later one.
#define KOLO_NCCL_CALLS(CALL)                                                                                          \
  CALL(GetVersion, int*)                                                                                               \
  CALL(GetUniqueId, ncclUniqueId*)                                                                                     \
  CALL(GroupStart)                                                                                                     \
  CALL(GroupEnd)                                                                                                       \
  CALL(AllReduce, const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)              \
  CALL(Reduce, const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t)            \
  CALL(AllGather, const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t)                           \
  CALL(Broadcast, const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)                      \
  CALL(ReduceScatter, const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)          \
  CALL(Send, const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)                                  \
  CALL(Recv, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)                                        \
  CALL(CommInitRankConfig, ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)                                         \
  CALL(CommGetAsyncError, ncclComm_t, ncclResult_t*)                                                                   \
  CALL(CommFinalize, ncclComm_t)                                                                                       \
  CALL(CommDestroy, ncclComm_t)                                                                                        \
  CALL(CommAbort, ncclComm_t)                                                                                          \
  CALL(MemAlloc, void**, std::size_t)                                                                                  \
  CALL(MemFree, void*)                                                                                                 \
  CALL(CommRegister, ncclComm_t, void*, std::size_t, void**)                                                           \
  CALL(CommDeregister, ncclComm_t, void*)                                                                              \
  CALL(AlltoAll, const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t)                            \
  CALL(CommRevoke, ncclComm_t, int)

struct NcclCalls {
  std::string file;  ///< from which it was opened; empty: emulated
#define KOLO_NCCL_CALL(name, ...) ncclResult_t (*name)(__VA_ARGS__) = nullptr;
  KOLO_NCCL_CALLS(KOLO_NCCL_CALL)
#undef KOLO_NCCL_CALL
  const char* (*GetErrorString)(ncclResult_t) = nullptr;
  const char* (*GetLastError)(ncclComm_t) = nullptr;
};

/// Calls `visit` with each call's name and its place in the table.
template <class Visit>
void for_each_nccl_call(NcclCalls& calls, Visit&& visit) {
#define KOLO_NCCL_CALL(name, ...) visit("nccl" #name, calls.name);
  KOLO_NCCL_CALLS(KOLO_NCCL_CALL)
#undef KOLO_NCCL_CALL
  visit("ncclGetErrorString", calls.GetErrorString);
  visit("ncclGetLastError", calls.GetLastError);
}

/// The process's NCCL, which is opened the first time, and stays. Throws Error (transport) if there is none.
/// Thread-safe.
const NcclCalls& nccl_calls();
/// The same without opening it; null: it has not been opened.
const NcclCalls* opened_nccl() noexcept;

}  // namespace kolo::cuda
