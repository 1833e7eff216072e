// SPDX-License-Identifier: Apache-2.0
//
// Allocation, as cudaMalloc and ncclMemAlloc share it.
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include "call.hpp"
#include "memory.hpp"

namespace kolo::emulated {

/// Memory of the calling thread's device, or of the host.
cudaError_t allocate(Call& call, Allocation::Kind kind, void** data, std::size_t bytes, std::size_t alignment);
/// Waits until the device is idle, as cudaFree does, and looks whether somebody wrote beside the memory.
cudaError_t free(Call& call, Allocation::Kind kind, void* data);

}  // namespace kolo::emulated
