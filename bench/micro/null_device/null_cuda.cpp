// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime of null_device.hpp, and in the place of Kolo's kernels nothing.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "data/cuda/device.hpp"

namespace {

constexpr int kDevices = 8;  // as many ranks can have one each
thread_local int current_device = 0;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

/// A handle that no other object has.
template <class Handle>
Handle new_handle() {
  static std::atomic<std::uintptr_t> last{0};
  return reinterpret_cast<Handle>(++last);
}

/// Nobody touches its pages, so the system need not have them.
cudaError_t allocate(void** memory, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  *memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t release(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

// -- the driver's; a context is its device's number + 1

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1); }

CUresult init(unsigned /*flags*/) { return CUDA_SUCCESS; }
CUresult error_name(CUresult /*result*/, const char** name) {
  *name = "an error";
  return CUDA_SUCCESS;
}
CUresult retain_primary(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult get_current(CUcontext* context) {
  *context = context_of(current_device);
  return CUDA_SUCCESS;
}
thread_local int device_below = 0;  // the push
CUresult push_current(CUcontext context) {
  device_below = std::exchange(current_device, static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1);
  return CUDA_SUCCESS;
}
CUresult pop_current(CUcontext* context) {
  *context = context_of(std::exchange(current_device, device_below));
  return CUDA_SUCCESS;
}
CUresult pointer_attributes(unsigned count, CUpointer_attribute* wanted, void** found, CUdeviceptr /*pointer*/) {
  for (unsigned i = 0; i < count; ++i) {
    const bool is_device = wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    const int value = wanted[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CU_MEMORYTYPE_DEVICE : 0;
    *static_cast<int*>(found[i]) = is_device ? current_device : value;
  }
  return CUDA_SUCCESS;
}

void* driver_call(const std::string_view name) {
  if (name == "cuInit") return reinterpret_cast<void*>(&init);
  if (name == "cuGetErrorName") return reinterpret_cast<void*>(&error_name);
  if (name == "cuDevicePrimaryCtxRetain") return reinterpret_cast<void*>(&retain_primary);
  if (name == "cuCtxGetCurrent") return reinterpret_cast<void*>(&get_current);
  if (name == "cuCtxPushCurrent") return reinterpret_cast<void*>(&push_current);
  if (name == "cuCtxPopCurrent") return reinterpret_cast<void*>(&pop_current);
  return name == "cuPointerGetAttributes" ? reinterpret_cast<void*>(&pointer_attributes) : nullptr;
}

}  // namespace

// ---------------------------------------------------------------- devices

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "a device that does nothing");
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->pciBusID = device;
  properties->multiProcessorCount = 132;  // as an H100 has
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned /*version*/,
                                             unsigned long long /*flags*/, cudaDriverEntryPointQueryResult* status) {
  *found = driver_call(name);
  *status = *found == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "an error"; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "refused"; }

// ---------------------------------------------------------------- streams and events

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/, int /*priority*/) {
  *stream = new_handle<cudaStream_t>();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new_handle<cudaStream_t>();
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* number) {
  *number = reinterpret_cast<std::uintptr_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/, unsigned /*flags*/) {
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t /*stream*/, cudaHostFn_t function, void* argument) {
  function(argument);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new_handle<cudaEvent_t>();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t /*start*/, cudaEvent_t /*stop*/) {
  *milliseconds = 0;
  return cudaSuccess;
}

// ---------------------------------------------------------------- memory

cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return allocate(memory, bytes); }
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) { return allocate(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }
cudaError_t cudaMemcpyAsync(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* /*memory*/, int /*value*/, std::size_t /*bytes*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}

// ---------------------------------------------------------------- Kolo's kernels

namespace kolo::cuda {

void load_kernels() {}
void launch(const Move& /*move*/, std::uint32_t /*blocks*/, cudaStream_t /*stream*/) {}
bool performs(const char* /*call*/, CallSite /*site*/) noexcept { return true; }
void host_touches(const void* /*data*/, std::size_t /*bytes*/, bool /*writes*/, const char* /*what*/) noexcept {}
void tells_of(cudaEvent_t /*event*/, cudaStream_t /*stream*/) noexcept {}
void host_was_told() noexcept {}
void host_passes_on(const void* /*key*/) noexcept {}
void host_takes_over(const void* /*key*/) noexcept {}

}  // namespace kolo::cuda
