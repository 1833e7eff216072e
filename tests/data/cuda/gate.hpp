// SPDX-License-Identifier: Apache-2.0
//
// Holds up a stream until a test says otherwise.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace kolo::cuda::test {

/// Keeps a stream from going on, until `open` or its end.
class Gate {
 public:
  Gate() = default;
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void hold(cudaStream_t stream) { ASSERT_EQ(cudaLaunchHostFunc(stream, wait, this), cudaSuccess); }
  void open() { open_.store(true); }

 private:
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open_.load()) std::this_thread::yield();
  }
  std::atomic<bool> open_{false};
};
/// Opens it at the end of a scope that is shorter than its own, whatever is thrown there.
struct Opened {
  Gate& gate;
  ~Opened() { gate.open(); }
};

}  // namespace kolo::cuda::test
