// SPDX-License-Identifier: Apache-2.0
//
// Work that takes a given time on the device and touches no memory.
#pragma once

#include <cuda_runtime_api.h>

namespace kolo_bench {

/// Gives `stream` a kernel of one thread that runs for so long. Throws std::runtime_error.
void spin(double microseconds, cudaStream_t stream);

}  // namespace kolo_bench
