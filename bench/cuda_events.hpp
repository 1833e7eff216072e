// SPDX-License-Identifier: Apache-2.0
//
// What benchmarks ask of the CUDA runtime: every result checked, and times by the device's own events.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace kolo_bench {

/// Throws std::runtime_error with the call's name and CUDA's own words.
inline void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

/// A point of a stream's time, on the device that is current when it is made.
class Point {
 public:
  Point() { check(cudaEventCreate(&raw_), "cudaEventCreate"); }
  ~Point() { static_cast<void>(cudaEventDestroy(raw_)); }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(raw_, stream), "cudaEventRecord"); }
  /// Waits until the device has come to this point, and so to `before`, which the same stream met earlier.
  [[nodiscard]] double microseconds_since(const Point& before) const {
    check(cudaEventSynchronize(raw_), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, before.raw_, raw_), "cudaEventElapsedTime");
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t raw_ = nullptr;
};

}  // namespace kolo_bench
