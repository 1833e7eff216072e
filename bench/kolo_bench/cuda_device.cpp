// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include "flags.hpp"
#include "job.hpp"

#ifndef KOLO_HAS_CUDA

namespace kolo_bench {

std::shared_ptr<Device> open_device(Job& /*job*/) {
  throw BadFlags("--device cuda needs a Kolo that was built with CUDA; this one was not");
}

}  // namespace kolo_bench

#else

#include <cuda_runtime_api.h>

#include <kolo/cuda.hpp>
#include <kolo/error.hpp>

#include "bench/cuda_events.hpp"
#include "measure.hpp"
#include "nccl_peer.hpp"

namespace kolo_bench {
namespace {

class DeviceTimer final : public Timer {
 public:
  explicit DeviceTimer(cudaStream_t stream) : stream_(stream) {}
  void settle() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  void start() override { begin_.record(stream_); }
  double stop() override {
    end_.record(stream_);
    return end_.microseconds_since(begin_);
  }

 private:
  const cudaStream_t stream_;
  Point begin_, end_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice() : index_(kolo::cuda::bind()) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~CudaDevice() override {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] std::string name() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties");
    return properties.name;
  }
  [[nodiscard]] kolo::Device place() const override { return {kolo::DeviceKind::cuda, index_}; }
  [[nodiscard]] kolo::Stream stream() const override { return {stream_}; }
  [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return {memory, [](void* used) { static_cast<void>(cudaFree(used)); }};
  }
  void write(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  void read(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyDeviceToHost); }
  [[nodiscard]] kolo::TensorView view(void* data, kolo::DType dtype, const kolo::Shape& shape) const override {
    return {data, dtype, shape, place(), stream()};
  }
  void follow(kolo::Handle& handle) override { kolo::cuda::wait_on(handle, stream_); }
  [[nodiscard]] std::shared_ptr<Timer> timer() override { return std::make_shared<DeviceTimer>(stream_); }
  [[nodiscard]] std::shared_ptr<Peer> nccl(Job& job) override { return make_nccl_peer(job, stream_); }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    if (bytes != 0) check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  const int index_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::shared_ptr<Device> open_device(Job& job) {
  std::shared_ptr<Device> device;
  std::string why;
  try {
    device = std::make_shared<CudaDevice>();
  } catch (const kolo::Error& error) {
    if (error.code() != kolo::ErrorCode::unsupported) throw;
    why = error.status().message();
  }
  const std::int64_t without = job.sum(device ? 0 : 1);
  if (without == 0) return device;
  if (why.empty()) why = std::to_string(without) + " of " + std::to_string(job.size()) + " ranks have no CUDA device";
  throw BadFlags("--device cuda: " + why);
}

}  // namespace kolo_bench

#endif
