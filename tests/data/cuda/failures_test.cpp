// SPDX-License-Identifier: Apache-2.0
//
// Every function of CUDA and NCCL fails on one rank, once and early, or from some call on: whatever it is for, the job
// ends on both ranks, says so or has the right result, and leaves nothing behind.
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include <nccl.h>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {
namespace {

using emulated::Failure;

class Failures : public CudaTest, public ::testing::WithParamInterface<const char*> {
 protected:
  static Options options() {
    return CudaTest::options()
        .with_setting("KOLO_GPU_BACKEND", GetParam())
        .with_setting("KOLO_GPU_BUFFERS", "2")
        .with_setting("KOLO_GPU_DIRECT_BYTES", "64K")
        .with_setting("KOLO_TIMEOUT_S", "20")
        .with_setting("KOLO_LATCH_TIMEOUT_S", "0.1");
  }
};

constexpr std::int64_t kSizes[] = {1000, 20000};  // through a buffer, and, by NCCL, where it lies

/// Some steps; counts wrong results.
void steps(const Failure& failure, std::atomic<int>& wrong) {
  bind();
  const RankStream stream;
  std::vector<DeviceTensor> tensors;
  for (const std::int64_t elements : kSizes) {
    tensors.emplace_back(DType::int32, elements, stream);
  }
  together(1, [&] { emulated::inject(failure); });
  const auto value = [own = rank()](std::int64_t i) { return i + own; };
  for (int step = 0; step < 3; ++step) {
    std::vector<Handle> handles;
    for (const auto& tensor : tensors) {
      tensor.write(elements_of(DType::int32, tensor.view().elements(), value));
      handles.push_back(allreduce_async("t" + std::to_string(handles.size()), tensor.view()));
    }
    wait_all(handles);
    emulated::acquire_all();
    for (const auto& tensor : tensors) {
      const auto wanted = elements_of(DType::int32, tensor.view().elements(), [](std::int64_t i) { return 2 * i + 1; });
      if (tensor.read() != wanted) ++wrong;
    }
    end_step();
  }
}

TEST_P(Failures, OfAnyCallEndTheJobOrChangeNothing) {
  struct Api {
    const char* name;
    int code;
    bool matters;  // nothing is done without it
  };
  std::vector<Api> apis = {
      {"cudaGetDeviceProperties", cudaErrorUnknown, true},
      {"cudaDeviceGetStreamPriorityRange", cudaErrorUnknown, true},
      {"cudaStreamCreateWithPriority", cudaErrorUnknown, true},
      {"cudaEventCreateWithFlags", cudaErrorUnknown, true},
      {"cudaHostAlloc", cudaErrorMemoryAllocation, true},
      {"cudaMalloc", cudaErrorMemoryAllocation, true},
      {"cudaEventRecord", cudaErrorUnknown, true},
      {"cudaStreamWaitEvent", cudaErrorUnknown, true},
      {"cudaEventQuery", cudaErrorUnknown, true},
      {"cudaLaunchHostFunc", cudaErrorUnknown, true},
      {"cudaStreamIsCapturing", cudaErrorUnknown, true},
      {"cuDevicePrimaryCtxRetain", cudaErrorUnknown, true},
      {"cuCtxGetCurrent", cudaErrorUnknown, true},
      {"cuPointerGetAttributes", cudaErrorUnknown, true},
      {"cudaEventDestroy", cudaErrorUnknown, false},
      {"cudaFreeHost", cudaErrorUnknown, false},
      {"cudaThreadExchangeStreamCaptureMode", cudaErrorUnknown, false},
      {"cuCtxPopCurrent", cudaErrorUnknown, false},
  };
  if (std::string(GetParam()) == "nccl") {
    apis.insert(apis.end(), {{"ncclMemAlloc", ncclUnhandledCudaError, true},
                             {"ncclCommInitRankConfig", ncclSystemError, true},
                             {"ncclCommRegister", ncclSystemError, true},
                             {"ncclCommGetAsyncError", ncclSystemError, true},
                             {"ncclAllReduce", ncclSystemError, true},
                             {"ncclGroupEnd", ncclSystemError, true},
                             {"ncclCommDeregister", ncclSystemError, false},
                             {"ncclCommFinalize", ncclSystemError, false},
                             {"ncclCommDestroy", ncclSystemError, false}});
  }
  int jobs = 0;
  int noticed = 0;
  for (const Api& api : apis) {
    int failed = 0;
    for (const auto& [nth, and_later] : {std::pair(1, false), std::pair(3, true)}) {
      SCOPED_TRACE(std::string(api.name) + ", the " + std::to_string(nth) + ". call" + (and_later ? " and later" : ""));
      emulated::reset(machine());
      const Failure failure{.api = api.name,
                            .nth = static_cast<std::uint64_t>(nth),
                            .code = api.code,
                            .and_later = and_later,
                            .device = 1};
      std::atomic<int> wrong{0};
      try {
        run_local(
            2, [&] { steps(failure, wrong); }, options());
      } catch (const Error&) {
        ++failed;
      }
      ++jobs;
      EXPECT_EQ(wrong.load(), 0);
      emulated::drain();
      for (const emulated::Report& report : emulated::take_reports()) {
        ADD_FAILURE() << emulated::to_string(report.kind) << ": " << report.text;
      }
      if (api.matters) {
        for (const std::string& left : emulated::live_objects()) ADD_FAILURE() << "left behind: " << left;
      }
    }
    EXPECT_EQ(failed > 0, api.matters) << api.name;
    noticed += failed;
  }
  emulated::reset(machine());
  std::printf("%d jobs by way of %s with a failing call, %d of them ended by it\n", jobs, GetParam(), noticed);
}

INSTANTIATE_TEST_SUITE_P(By, Failures, ::testing::Values("nccl", "staged"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kolo::cuda::test
