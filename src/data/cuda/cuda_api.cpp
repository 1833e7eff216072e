// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/cuda_api.hpp"

#include <cmath>
#include <cstdio>

#include <kolo/error.hpp>

#include "data/cuda/device.hpp"

namespace kolo::cuda {
namespace {

/// For what is given back at the end. After a fault the device refuses this, too, and there is nobody to tell.
void forgive(cudaError_t /*result*/) noexcept {}

cudaEvent_t make_event(unsigned flags) {
  cudaEvent_t event = nullptr;
  cuda::check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return event;
}

bool is_past(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) return false;
  cuda::check(result, "cudaEventQuery");
  return true;
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw Error(result == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::transport,
              std::string(call) + " failed: " + cudaGetErrorString(result) + " (" + cudaGetErrorName(result) + ")");
}

// ---------------------------------------------------------------- devices

DeviceCount count_devices() {
  DeviceCount count;
  const cudaError_t result = cudaGetDeviceCount(&count.devices);
  if (result == cudaErrorInsufficientDriver) {  // what the runtime also says when there is none at all
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) return {0, "no NVIDIA driver is installed"};
  }
  if (result != cudaSuccess) return {0, cudaGetErrorString(result)};
  if (count.devices == 0) count.why = "no device is visible";
  return count;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

bool is_unloaded() noexcept {
  int device = 0;
  return cudaGetDevice(&device) == cudaErrorCudartUnloading;
}

void set_current_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

DeviceInfo device_info(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  DeviceInfo info;
  info.name = properties.name;
  info.processors = properties.multiProcessorCount;
  static constexpr char kDigits[] = "0123456789abcdef";
  for (const char byte : properties.uuid.bytes) {
    info.uuid += kDigits[static_cast<unsigned char>(byte) >> 4];
    info.uuid += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  char bus[32];
  std::snprintf(bus, sizeof bus, "%04x:%02x:%02x", static_cast<unsigned>(properties.pciDomainID),
                static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
  info.bus = bus;
  return info;
}

std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// ---------------------------------------------------------------- streams and events

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t result = cudaStreamIsCapturing(stream, &status);
  // The legacy default stream, while a stream that it would wait for is captured.
  if (result == cudaErrorStreamCaptureImplicit) return true;
  check(result, "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

std::uint64_t number_of(cudaStream_t stream) {
  unsigned long long number = 0;
  check(cudaStreamGetId(stream, &number), "cudaStreamGetId");
  return number;
}

void wait_for(cudaStream_t stream) { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

void GiveBack::operator()(cudaStream_t stream) const noexcept { forgive(cudaStreamDestroy(stream)); }
void GiveBack::operator()(cudaEvent_t event) const noexcept { forgive(cudaEventDestroy(event)); }

OwnStream::OwnStream() {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t raw = nullptr;
  check(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  raw_.reset(raw);
}

void OwnStream::synchronize(CallSite site) const {
  if (performs("cudaStreamSynchronize", site)) check(cudaStreamSynchronize(raw()), "cudaStreamSynchronize");
}

void OwnStream::call_on_host(cudaHostFn_t function, void* argument, const Event& told_of) const {
  tells_of(told_of.raw_.get(), raw());
  check(cudaLaunchHostFunc(raw(), function, argument), "cudaLaunchHostFunc");
}

Event::Event() : raw_(make_event(cudaEventDisableTiming)) {}

void Event::record(cudaStream_t stream, CallSite site) const {
  if (performs("cudaEventRecord", site)) check(cudaEventRecord(raw_.get(), stream), "cudaEventRecord");
}

void Event::hold_back(cudaStream_t stream, CallSite site) const {
  if (performs("cudaStreamWaitEvent", site)) check(cudaStreamWaitEvent(stream, raw_.get(), 0), "cudaStreamWaitEvent");
}

bool Event::reached(CallSite site) const { return !performs("cudaEventQuery", site) || is_past(raw_.get()); }

TimedEvent::TimedEvent() : raw_(make_event(cudaEventDefault)) {}

void TimedEvent::stamp(cudaStream_t stream) const { check(cudaEventRecord(raw_.get(), stream), "cudaEventRecord"); }

bool TimedEvent::is_reached() const { return is_past(raw_.get()); }

std::chrono::nanoseconds TimedEvent::since(const TimedEvent& other) const {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, other.raw_.get(), raw_.get()), "cudaEventElapsedTime");
  return std::chrono::nanoseconds(std::llround(static_cast<double>(ms) * 1e6));
}

// ---------------------------------------------------------------- memory

void copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  wait_for(stream);
}

void zero_async(void* data, std::size_t bytes, cudaStream_t stream) {
  check(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync");
}

DeviceMemory::DeviceMemory(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes > 0) check(cudaMalloc(&memory, bytes), "cudaMalloc");
  hold(memory, bytes);
}

void FreeDevice::operator()(std::byte* memory) const noexcept { forgive(cudaFree(memory)); }

void DeviceMemory::free_when_idle(CallSite site) {
  if (performs("cudaFree", site)) *this = DeviceMemory();
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes > 0) check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  hold(memory, bytes);
}

void FreePinned::operator()(std::byte* memory) const noexcept { forgive(cudaFreeHost(memory)); }

}  // namespace kolo::cuda
