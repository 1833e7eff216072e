// SPDX-License-Identifier: Apache-2.0
//
// The kernels, for real devices.
#include <string>

#include <kolo/error.hpp>

#include "data/cuda/device.hpp"
#include "data/cuda/kernels.hpp"

namespace kolo::cuda {
namespace {

__global__ void __launch_bounds__(kernels::kThreads) move_kernel(Move move) {
  kernels::move(move, {blockIdx.x, gridDim.x, threadIdx.x});
}

void check_launch(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::transport, std::string(what) + " failed: " + cudaGetErrorString(result) + " (" +
                                        cudaGetErrorName(result) + ")");
}

}  // namespace

void load_kernels() {
  cudaFuncAttributes attributes{};
  check_launch(cudaFuncGetAttributes(&attributes, move_kernel), "loading the kernels");
}

/// Not by <<<>>>: its result is the thread's last error, which may be that of a call before, as that an event has not
/// been reached yet.
void launch(const Move& move, std::uint32_t blocks, cudaStream_t stream) {
  Move argument = move;
  void* arguments[] = {&argument};
  check_launch(cudaLaunchKernel(reinterpret_cast<const void*>(move_kernel), dim3(blocks), dim3(kernels::kThreads),
                                arguments, 0, stream),
               "launching the kernel that packs and unpacks");
}

bool performs(const char* /*call*/, CallSite /*site*/) noexcept { return true; }
void host_touches(const void* /*data*/, std::size_t /*bytes*/, bool /*writes*/, const char* /*what*/) noexcept {}
void tells_of(cudaEvent_t /*event*/, cudaStream_t /*stream*/) noexcept {}
void host_was_told() noexcept {}
void host_passes_on(const void* /*key*/) noexcept {}
void host_takes_over(const void* /*key*/) noexcept {}

}  // namespace kolo::cuda
