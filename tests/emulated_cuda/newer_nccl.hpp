// SPDX-License-Identifier: Apache-2.0
//
// Calls of NCCL that the header of an older one does not declare, and whether the process has them.
#pragma once

#include <nccl.h>

#include <cstddef>

extern "C" {
ncclResult_t ncclAlltoAll(const void* input, void* output, std::size_t count, ncclDataType_t type,
                          ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclCommRevoke(ncclComm_t communicator, int flags);
}

namespace kolo::emulated {

/// With `false` Kolo's table has none of them.
void have_newer_nccl(bool is_newer);

}  // namespace kolo::emulated
