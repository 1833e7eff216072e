// SPDX-License-Identifier: Apache-2.0
//
// Eight ranks as processes on a machine of eight GPUs, all of which each rank sees: each rank has one context, on its
// own GPU. A program of its own, because an emulated device that has begun cannot be forked.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/cuda.hpp>

#include "tests/emulated_cuda/emulator.hpp"

namespace {

using kolo::emulated::Report;

constexpr int kRanks = 8;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void use_device() {
  constexpr std::size_t kCount = 1000;
  const int device = kolo::cuda::bind();
  cudaStream_t stream = nullptr;
  void* data = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "no stream");
  require(cudaMalloc(&data, kCount * sizeof(float)) == cudaSuccess, "no memory");
  require(cudaMemsetAsync(data, 0, kCount * sizeof(float), stream) == cudaSuccess, "no memset");
  const kolo::TensorView view = kolo::cuda::view(static_cast<float*>(data), kCount, stream);
  for (int step = 0; step < 3; ++step) {
    kolo::Handle handle = kolo::allreduce_async("x", view);
    kolo::cuda::wait_on(handle, stream);
    handle.wait();
  }
  kolo::barrier();
  std::string text;
  const std::vector<int> contexts = kolo::emulated::contexts();
  for (const int one : contexts) text += " " + std::to_string(one);
  std::printf("rank %d has contexts on:%s\n", kolo::rank(), text.c_str());
  require(contexts == std::vector<int>{device}, "rank " + std::to_string(kolo::rank()) + " has contexts on" + text);
  static_cast<void>(cudaFree(data));
  static_cast<void>(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  try {
    kolo::run_forked(
        kRanks,
        [] {
          kolo::emulated::Config config;
          config.devices = kRanks;
          config.ranks_are_processes = true;
          kolo::emulated::reset(config);
          use_device();
        },
        kolo::Options{}.with_setting("KOLO_TIMEOUT_S", "100").with_setting("KOLO_FUSION_THRESHOLD", "64K"));
  } catch (const std::exception& error) {
    std::printf("%s\nFAIL\n", error.what());
    return 1;
  }
  std::printf("PASS\n");
  return 0;
}
