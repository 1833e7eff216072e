// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_times/spin.hpp"

#include "bench/cuda_events.hpp"

namespace kolo_bench {
namespace {

__device__ unsigned long long nanoseconds_now() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin_kernel(unsigned long long nanoseconds) {
  const unsigned long long begin = nanoseconds_now();
  while (nanoseconds_now() - begin < nanoseconds) {
  }
}

}  // namespace

void spin(double microseconds, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(static_cast<unsigned long long>(1e3 * microseconds));
  check(cudaGetLastError(), "spin_kernel");
}

}  // namespace kolo_bench
