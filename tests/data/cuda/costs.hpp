// SPDX-License-Identifier: Apache-2.0
//
// What was asked of CUDA and NCCL, counted from a trace of the emulated device. docs/gpu.md has the numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/emulator.hpp"

namespace kolo::cuda::test {

struct Costs {
  std::size_t cuda = 0;            ///< calls of CUDA that order or give work, kernel launches among them
  std::size_t nccl = 0;            ///< NCCL's
  std::size_t stream_waits = 0;    ///< of one stream for another
  std::size_t thread_changes = 0;  ///< from one of these calls to the next
  std::size_t copies = 0;          ///< of memory: of tables, for steps that have not been seen
  std::size_t bells = 0;
};

/// What one rank's threads have done on its device. Questions (whether an event has come, whether NCCL has an error,
/// whether a stream is captured) and changes of the current device are not counted: how many there are is a matter of
/// how long somebody waits.
inline Costs costs_of(const std::vector<emulated::TracedCall>& calls, int device) {
  const std::set<std::string> work{"cudaEventRecord", "cudaStreamWaitEvent", "launch", "cudaMemcpyAsync",
                                   "cudaLaunchHostFunc"};
  Costs costs;
  const emulated::TracedCall* last = nullptr;
  for (const emulated::TracedCall& call : calls) {
    const bool is_nccl = call.api.rfind("nccl", 0) == 0 && call.api != "ncclCommGetAsyncError";
    if (call.device != device || (!is_nccl && work.count(call.api) == 0)) continue;
    (is_nccl ? costs.nccl : costs.cuda) += 1;
    costs.stream_waits += call.api == "cudaStreamWaitEvent" ? 1 : 0;
    costs.copies += call.api == "cudaMemcpyAsync" ? 1 : 0;
    costs.bells += call.api == "cudaLaunchHostFunc" ? 1 : 0;
    if (last != nullptr && last->thread != call.thread) ++costs.thread_changes;
    last = &call;
  }
  return costs;
}

/// The cheapest of some tries: a thread may happen to be awake for something else.
inline Costs cheapest(const std::vector<Costs>& tries) {
  return *std::min_element(tries.begin(), tries.end(), [](const Costs& a, const Costs& b) {
    return std::pair(a.cuda + a.nccl, a.thread_changes) < std::pair(b.cuda + b.nccl, b.thread_changes);
  });
}

inline void print(const std::string& what, const Costs& costs) {
  std::printf("%-40s %4zu CUDA %4zu NCCL %4zu stream waits %4zu thread changes %2zu copies %2zu bells\n", what.c_str(),
              costs.cuda, costs.nccl, costs.stream_waits, costs.thread_changes, costs.copies, costs.bells);
}

}  // namespace kolo::cuda::test
