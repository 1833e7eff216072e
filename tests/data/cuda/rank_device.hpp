// SPDX-License-Identifier: Apache-2.0
//
// What a rank of these tests does with its device: a stream, tensors that are written and read by work of the stream
// alone, so that nothing but events keeps them in order.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/cuda.hpp>
#include <kolo/types.hpp>

#include "tests/data/cpu/exact_data.hpp"
#include "tests/data/cuda/machine.hpp"

namespace kolo::cuda::test {

namespace exact = data::cpu::test;

inline void ok(cudaError_t result) { ASSERT_EQ(result, cudaSuccess) << cudaGetErrorString(result); }

class RankStream {
 public:
  RankStream() { ok(cudaStreamCreateWithFlags(&raw_, cudaStreamNonBlocking)); }
  ~RankStream() { EXPECT_EQ(cudaStreamDestroy(raw_), cudaSuccess); }
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;
  operator cudaStream_t() const { return raw_; }
  void synchronize() const { ok(cudaStreamSynchronize(raw_)); }

 private:
  cudaStream_t raw_ = nullptr;
};

/// What tensors hold. (A vector of std::byte compares them one by one.)
using Bytes = std::vector<unsigned char>;

/// Elements on the device, at any alignment, between borders that only the emulator watches.
class DeviceTensor {
 public:
  DeviceTensor(DType dtype, std::int64_t elements, cudaStream_t stream, std::size_t misalignment = 0)
      : dtype_(dtype), elements_(elements), stream_(stream) {
    ok(cudaMalloc(&memory_, bytes() + misalignment + 1));
    data_ = static_cast<std::byte*>(memory_) + misalignment;
  }
  ~DeviceTensor() { EXPECT_EQ(cudaFree(memory_), cudaSuccess); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] TensorView view() const { return view(Shape{elements_}); }
  [[nodiscard]] TensorView view(const Shape& shape) const {
    return {data_, dtype_, shape, device_of(data_), Stream{stream_}};
  }

  /// As the stream's next work. The source is read before the call returns.
  void write(const Bytes& contents) const {
    ASSERT_EQ(contents.size(), bytes());
    if (!contents.empty()) ok(cudaMemcpyAsync(data_, contents.data(), bytes(), cudaMemcpyHostToDevice, stream_));
  }
  /// What is there after the stream's work so far.
  [[nodiscard]] Bytes read() const {
    Bytes contents(bytes());
    if (!contents.empty()) ok(cudaMemcpyAsync(contents.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream_));
    ok(cudaStreamSynchronize(stream_));
    return contents;
  }

 private:
  const DType dtype_;
  const std::int64_t elements_;
  const cudaStream_t stream_;
  void* memory_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Elements `value(i)`, where `value` repeats after `period`.
template <class Value>
Bytes elements_of(DType dtype, std::int64_t elements, Value value,
                  std::int64_t period = std::numeric_limits<std::int64_t>::max()) {
  Bytes bytes(static_cast<std::size_t>(elements) * size_of(dtype));
  exact::store_repeating(dtype, reinterpret_cast<std::byte*>(bytes.data()), elements, value, period);
  return bytes;
}

/// Of numbers whose reductions are exact: what a rank of a group of so many gives from element `first` on, and what
/// becomes of what all give.
inline Bytes given_values(DType dtype, ReduceOp op, std::int64_t elements, std::int64_t first, int of,
                          int ranks = size()) {
  return elements_of(
      dtype, elements, [&](std::int64_t i) { return exact::value_of(dtype, op, first + i, of, ranks); },
      exact::kPeriod);
}
inline Bytes reduced_values(DType dtype, ReduceOp op, std::int64_t elements, std::int64_t first, int ranks = size()) {
  return elements_of(
      dtype, elements, [&](std::int64_t i) { return exact::reduced_value(dtype, op, first + i, ranks); },
      exact::kPeriod);
}

/// The stream's next work comes behind the operation: by an event, or because wait_on has said that the host knows.
inline void follow(Handle& handle, cudaStream_t stream) { wait_on(handle, stream); }

/// A world of ranks as threads on emulated devices, and no report at its end.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override { emulated::reset(machine()); }
  void TearDown() override {
    expect_no_reports();
    for (const std::string& left : emulated::live_objects()) ADD_FAILURE() << "left behind: " << left;
    emulated::reset();
  }

  static emulated::Config machine() {
    emulated::Config config;
    config.devices = 4;
    return config;
  }
  /// With slots of 1 MiB: of a world's first seconds the emulator takes most to fill its memory with poison.
  static Options options() {
    return Options{}
        .with_setting("KOLO_TIMEOUT_S", "60")
        .with_setting("KOLO_FUSION_THRESHOLD", "1M")
        .with_setting("KOLO_SHARE_DEVICE", emulated::kIsReal ? "1" : "0");
  }

  static void expect_no_reports() {
    emulated::drain();
    for (const emulated::Report& report : emulated::take_reports()) {
      ADD_FAILURE() << emulated::to_string(report.kind) << ": " << report.text;
    }
  }
};

}  // namespace kolo::cuda::test
