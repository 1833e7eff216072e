// SPDX-License-Identifier: Apache-2.0
//
// Holds up a stream until a test says otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

#include "tests/data/cuda/rank_device.hpp"

namespace kolo::cuda::test {

/// Keeps a stream from going on.
class Gate {
 public:
  void hold(cudaStream_t stream) { ok(cudaLaunchHostFunc(stream, wait, this)); }
  void open() { open_.store(true); }

 private:
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open_.load()) std::this_thread::yield();
  }
  std::atomic<bool> open_{false};
};
/// Opens it at the end of a scope, whatever is thrown there.
struct Opened {
  Gate& gate;
  ~Opened() { gate.open(); }
};

}  // namespace kolo::cuda::test
