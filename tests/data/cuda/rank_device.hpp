// SPDX-License-Identifier: Apache-2.0
//
// What a rank of these tests does with its device: a stream, tensors that are written and read by work of the stream
// alone, so that nothing but events keeps them in order.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/context.hpp>
#include <kolo/cuda.hpp>
#include <kolo/types.hpp>

#include "tests/data/cpu/exact_data.hpp"
#include "tests/data/cuda/machine.hpp"
#include "tests/worlds/errors.hpp"

namespace kolo::cuda::test {

namespace exact = data::cpu::test;
using kolo::testing::sentence_of;

/// Success when the call is refused with this code and a sentence that has `part` in it.
template <class Call>
::testing::AssertionResult refused(ErrorCode wanted, const char* part, Call&& call) {
  const std::string said = sentence_of(wanted, std::forward<Call>(call));
  if (said.front() == '(') return ::testing::AssertionFailure() << said;
  return kolo::testing::has(said, {part});
}

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

/// Elements `value(i)`, where `value` repeats after `period`.
template <class Value>
Bytes elements_of(DType dtype, std::int64_t elements, std::int64_t period, Value value) {
  Bytes bytes(static_cast<std::size_t>(elements) * size_of(dtype));
  exact::store_repeating(dtype, reinterpret_cast<std::byte*>(bytes.data()), elements, value, period);
  return bytes;
}
template <class Value>
Bytes elements_of(DType dtype, std::int64_t elements, Value value) {
  return elements_of(dtype, elements, std::numeric_limits<std::int64_t>::max(), value);
}
/// The same value everywhere.
inline auto always(std::int64_t value) {
  return [value](std::int64_t) { return value; };
}

inline cudaStream_t stream_of(const TensorView& tensor) { return static_cast<cudaStream_t>(tensor.stream()->native); }
/// As the next work of the tensor's stream. The source is read before the call returns.
inline void write(const TensorView& tensor, const Bytes& contents) {
  ASSERT_EQ(contents.size(), static_cast<std::size_t>(tensor.bytes()));
  if (contents.empty()) return;
  ok(cudaMemcpyAsync(tensor.data(), contents.data(), contents.size(), cudaMemcpyHostToDevice, stream_of(tensor)));
}
/// What is there after the stream's work so far.
inline Bytes read(const TensorView& tensor) {
  Bytes contents(static_cast<std::size_t>(tensor.bytes()));
  if (!contents.empty())
    ok(cudaMemcpyAsync(contents.data(), tensor.data(), contents.size(), cudaMemcpyDeviceToHost, stream_of(tensor)));
  ok(cudaStreamSynchronize(stream_of(tensor)));
  return contents;
}

/// Elements on the device, at any alignment, between borders that only the emulator watches.
class DeviceTensor {
 public:
  DeviceTensor(DType dtype, std::int64_t elements, cudaStream_t stream, std::size_t misalignment = 0)
      : dtype_(dtype), elements_(elements), stream_(stream) {
    ok(cudaMalloc(&memory_, bytes() + misalignment + 1));
    data_ = static_cast<std::byte*>(memory_) + misalignment;
  }
  /// The stream's next work writes `value(i)`.
  template <std::invocable<std::int64_t> Value>
  DeviceTensor(DType dtype, std::int64_t elements, cudaStream_t stream, Value value)
      : DeviceTensor(dtype, elements, stream) {
    write(elements_of(dtype, elements, value));
  }
  DeviceTensor(DeviceTensor&& from) noexcept
      : dtype_(from.dtype_), elements_(from.elements_), stream_(from.stream_),
        memory_(std::exchange(from.memory_, nullptr)), data_(from.data_) {}
  ~DeviceTensor() {
    if (memory_ == nullptr) return;  // it was moved away
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
  }

  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(elements_) * size_of(dtype_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] TensorView view() const { return view(Shape{elements_}); }
  [[nodiscard]] TensorView view(const Shape& shape) const {
    return {data_, dtype_, shape, device_of(data_), Stream{stream_}};
  }

  void write(const Bytes& contents) const { kolo::cuda::test::write(view(), contents); }
  [[nodiscard]] Bytes read() const { return kolo::cuda::test::read(view()); }

 private:
  const DType dtype_;
  const std::int64_t elements_;
  const cudaStream_t stream_;
  void* memory_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Of numbers whose reductions are exact: what a rank of a group of so many gives from element `first` on, and what
/// becomes of what all give.
inline Bytes given_values(DType dtype, ReduceOp op, std::int64_t elements, std::int64_t first, int of,
                          int ranks = size()) {
  return elements_of(dtype, elements, exact::kPeriod,
                     [&](std::int64_t i) { return exact::value_of(dtype, op, first + i, of, ranks); });
}
inline Bytes reduced_values(DType dtype, ReduceOp op, std::int64_t elements, std::int64_t first, int ranks = size()) {
  return elements_of(dtype, elements, exact::kPeriod,
                     [&](std::int64_t i) { return exact::reduced_value(dtype, op, first + i, ranks); });
}

/// The stream's next work comes behind the operation: by an event, or because wait_on has said that the host knows.
inline void follow(Handle& handle, cudaStream_t stream) { wait_on(handle, stream); }

/// What the stream's work behind the operation finds in the tensor. The host has waited for the operation, too.
inline Bytes result_of(Handle handle, const TensorView& tensor) {
  follow(handle, stream_of(tensor));
  Bytes found = read(tensor);
  handle.wait();
  return found;
}
inline Bytes result_of(Handle handle, const DeviceTensor& tensor) {
  return result_of(std::move(handle), tensor.view());
}

/// Of this rank, from its first call on.
inline Device own_device() { return {DeviceKind::cuda, bind()}; }
/// A world of so many ranks, each of which has chosen its device and has a stream.
template <class Body>
void on_devices(int ranks, const Options& with, const Body& body) {
  const auto one = [&] {
    bind();
    const RankStream stream;
    body(stream);
  };
  run_local(ranks, one, with);
}

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

/// One rank does it when all are here, and none goes on before.
template <class Action>
void together(int by, Action action) {
  barrier();
  if (rank() == by) action();
  barrier();
}

/// Such a world that ends with an error. What its ranks leave is their own.
template <class Body>
void expect_error(int ranks, const Options& with, const Body& body) {
  EXPECT_THROW(on_devices(ranks, with, body), Error);
  emulated::drain();
  emulated::take_reports();
}

/// A world's number of ranks; KOLO_GPU_BACKEND.
using SomeWorld = std::tuple<int, const char*>;
class CudaWorlds : public CudaTest, public ::testing::WithParamInterface<SomeWorld> {
 protected:
  static int ranks() { return std::get<0>(GetParam()); }
  static bool is_staged() { return std::string(std::get<1>(GetParam())) == "staged"; }
  static Options options() { return CudaTest::options().with_setting("KOLO_GPU_BACKEND", std::get<1>(GetParam())); }
};
inline std::string name_of_world(const ::testing::TestParamInfo<SomeWorld>& info) {
  return std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}
/// By each backend. Where ranks as threads share one real device, only one of them uses NCCL, which wants each in a
/// process of its own.
inline std::vector<SomeWorld> worlds_of(const std::vector<int>& sizes, bool alone_on_a_real_device = true) {
  std::vector<SomeWorld> worlds;
  for (const int ranks : sizes) {
    if (!emulated::kIsReal) worlds.emplace_back(ranks, "nccl");
    worlds.emplace_back(ranks, "staged");
  }
  if (emulated::kIsReal && alone_on_a_real_device) worlds.emplace_back(1, "nccl");
  return worlds;
}

}  // namespace kolo::cuda::test
