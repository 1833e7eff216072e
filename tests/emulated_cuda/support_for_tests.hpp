// SPDX-License-Identifier: Apache-2.0
//
// What the emulator's own tests share.
#pragma once

#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "emulator.hpp"

namespace kolo::emulated {

/// A new machine for each test, and no report that the test did not expect.
class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(config()); }
  void TearDown() override {
    drain();
    for (const Report& report : take_reports()) ADD_FAILURE() << to_string(report.kind) << ": " << report.text;
    reset();
  }
  virtual Config config() const { return {}; }

  /// Takes the reports, of which there must be exactly one, of this kind; its text.
  static std::string the_report(Report::Kind kind) {
    drain();
    const std::vector<Report> reports = take_reports();
    EXPECT_EQ(reports.size(), 1U);
    for (const Report& report : reports) EXPECT_EQ(to_string(report.kind), to_string(kind)) << report.text;
    return reports.empty() ? std::string() : reports.front().text;
  }
};

inline void ok(cudaError_t result) { ASSERT_EQ(result, cudaSuccess) << cudaGetErrorString(result); }
inline void ok(ncclResult_t result) { ASSERT_EQ(result, ncclSuccess) << ncclGetErrorString(result); }

inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, flags));
  return stream;
}

inline cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

template <class T>
T* new_memory(std::size_t count) {
  void* data = nullptr;
  ok(cudaMalloc(&data, count * sizeof(T)));
  return static_cast<T*>(data);
}

template <class T>
T* new_pinned(std::size_t count) {
  void* data = nullptr;
  ok(cudaMallocHost(&data, count * sizeof(T)));
  return static_cast<T*>(data);
}

}  // namespace kolo::emulated
