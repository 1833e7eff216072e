// SPDX-License-Identifier: Apache-2.0
//
// A device that does nothing. null_cuda.cpp and null_nccl.cpp define what Kolo calls of the CUDA runtime and of NCCL,
// and a program that links them in the place of the two runs on any machine. Every call succeeds at once: events have
// come, streams are empty, kernels and collectives leave the memory alone, which is the host's. There is nothing to
// wait for, so what time passes is the host's own.
#pragma once

#include <cstddef>

namespace kolo_bench {

/// How often `ncclAllReduce` has been called in this process.
[[nodiscard]] std::size_t nccl_all_reduces() noexcept;

}  // namespace kolo_bench
