// SPDX-License-Identifier: Apache-2.0
//
// Kolo's table of NCCL's calls, with the emulated ones.
#include "data/cuda/nccl_calls.hpp"

#include "newer_nccl.hpp"

namespace kolo::cuda {
namespace {

NcclCalls& table() {
  static NcclCalls& calls = *[] {
    auto* const all = new NcclCalls;
#define KOLO_NCCL_CALL(name, ...) all->name = ::nccl##name;
    KOLO_NCCL_CALLS(KOLO_NCCL_CALL)
#undef KOLO_NCCL_CALL
    all->GetErrorString = ::ncclGetErrorString;
    all->GetLastError = ::ncclGetLastError;
    return all;
  }();
  return calls;
}

}  // namespace

const NcclCalls& nccl_calls() { return table(); }
const NcclCalls* opened_nccl() noexcept { return &table(); }

}  // namespace kolo::cuda

void kolo::emulated::have_newer_nccl(bool is_newer) {
  cuda::table().AlltoAll = is_newer ? ::ncclAlltoAll : nullptr;
  cuda::table().CommRevoke = is_newer ? ::ncclCommRevoke : nullptr;
}
