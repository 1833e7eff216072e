// SPDX-License-Identifier: Apache-2.0
//
// Kolo's table of NCCL's calls, with the emulated ones.
#include "data/cuda/nccl_calls.hpp"

namespace kolo::cuda {

const NcclCalls& nccl_calls() {
  static const NcclCalls& calls = *[] {
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

const NcclCalls* opened_nccl() noexcept { return &nccl_calls(); }

}  // namespace kolo::cuda
