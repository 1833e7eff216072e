// SPDX-License-Identifier: Apache-2.0
//
// The CUDA runtime's functions for devices, versions and errors.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "call.hpp"
#include "machine.hpp"

using kolo::emulated::Call;
using kolo::emulated::StreamPtr;

namespace {

/// The machine's number of a device of this process.
int number_of(const Call& call, int device) {
  const std::vector<int>& numbers = call.machine.config.numbers;
  return numbers.empty() ? device : numbers[static_cast<std::size_t>(device)];
}

// Busses 0x1b, 0x2b, ... of domain 0, as machines of eight devices number them.
int bus_of(const Call& call, int device) {
  const int number = number_of(call, device);
  return 0x1b + 0x10 * (call.machine.config.instances ? number / 2 : number);
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  Call call("cudaGetDeviceCount");
  *count = 0;
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  *count = call.machine.config.devices;
  return call.end(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
  Call call("cudaGetDevice");
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  *device = call.host().device;
  return call.end(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  Call call("cudaSetDevice");
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  if (!call.valid_device(device)) return call.end(cudaErrorInvalidDevice);
  call.host().device = device;
  call.enter_context();
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
  Call call("cudaDeviceSynchronize");
  if (const cudaError_t refused = call.refusal()) return refused;
  if (const cudaError_t refused = call.beside_captures()) return refused;
  for (const StreamPtr& stream : call.machine.streams_of(call.host().device)) {
    call.machine.await(call.lock, stream->last);
  }
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  Call call("cudaDeviceGetStreamPriorityRange");
  if (const cudaError_t refused = call.refusal()) return refused;
  *least = 0;
  *greatest = -5;
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  Call call("cudaDeviceGetPCIBusId");
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  if (!call.valid_device(device)) return call.end(cudaErrorInvalidDevice);
  if (length < 13) return call.misuse(cudaErrorInvalidValue, "a bus id has 13 characters");
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", static_cast<unsigned>(bus_of(call, device)));
  return call.end(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* properties, int device) {
  Call call("cudaGetDeviceProperties");
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  if (!call.valid_device(device)) return call.end(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "Emulated device");
  std::memcpy(properties->uuid.bytes, "0emulated device", sizeof properties->uuid.bytes);
  properties->uuid.bytes[0] = static_cast<char>('0' + number_of(call, device));
  properties->totalGlobalMem = call.machine.config.device_bytes;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->canMapHostMemory = 1;
  properties->unifiedAddressing = 1;
  properties->streamPrioritiesSupported = 1;
  properties->asyncEngineCount = 2;
  properties->pciBusID = bus_of(call, device);
  return call.end(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  Call call("cudaDeviceGetAttribute");
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  if (!call.valid_device(device)) return call.end(cudaErrorInvalidDevice);
  switch (attribute) {
  case cudaDevAttrMultiProcessorCount:
    *value = 4;
    break;
  case cudaDevAttrComputeCapabilityMajor:
    *value = 9;
    break;
  case cudaDevAttrComputeCapabilityMinor:
    *value = 0;
    break;
  case cudaDevAttrMaxThreadsPerBlock:
    *value = 1024;
    break;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *value = 2048;
    break;
  case cudaDevAttrWarpSize:
    *value = 32;
    break;
  case cudaDevAttrUnifiedAddressing:
    *value = 1;
    break;
  case cudaDevAttrCanMapHostMemory:
    *value = 1;
    break;
  default:
    return call.misuse(cudaErrorInvalidValue, "attribute " + std::to_string(attribute) + " is not emulated");
  }
  return call.end(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  Call call("cudaDriverGetVersion");
  *version = call.machine.config.driver ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  Call call("cudaRuntimeGetVersion");
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// ---------------------------------------------------------------- errors

cudaError_t cudaGetLastError() {
  Call call("cudaGetLastError");
  const auto last = static_cast<cudaError_t>(call.host().last_error);
  call.host().last_error = cudaSuccess;
  return last;
}

cudaError_t cudaPeekAtLastError() {
  Call call("cudaPeekAtLastError");
  return static_cast<cudaError_t>(call.host().last_error);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return "cudaSuccess";
  case cudaErrorInvalidValue:
    return "cudaErrorInvalidValue";
  case cudaErrorMemoryAllocation:
    return "cudaErrorMemoryAllocation";
  case cudaErrorInvalidMemcpyDirection:
    return "cudaErrorInvalidMemcpyDirection";
  case cudaErrorInsufficientDriver:
    return "cudaErrorInsufficientDriver";
  case cudaErrorNoDevice:
    return "cudaErrorNoDevice";
  case cudaErrorInvalidDevice:
    return "cudaErrorInvalidDevice";
  case cudaErrorInvalidResourceHandle:
    return "cudaErrorInvalidResourceHandle";
  case cudaErrorNotReady:
    return "cudaErrorNotReady";
  case cudaErrorIllegalAddress:
    return "cudaErrorIllegalAddress";
  case cudaErrorNotPermitted:
    return "cudaErrorNotPermitted";
  case cudaErrorHostMemoryAlreadyRegistered:
    return "cudaErrorHostMemoryAlreadyRegistered";
  case cudaErrorStreamCaptureUnsupported:
    return "cudaErrorStreamCaptureUnsupported";
  case cudaErrorStreamCaptureInvalidated:
    return "cudaErrorStreamCaptureInvalidated";
  case cudaErrorIllegalState:
    return "cudaErrorIllegalState";
  case cudaErrorUnknown:
    return "cudaErrorUnknown";
  default:
    return "an emulated CUDA error";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return "no error";
  case cudaErrorMemoryAllocation:
    return "out of memory";
  case cudaErrorInsufficientDriver:
    return "CUDA driver version is insufficient for CUDA runtime version";
  case cudaErrorNoDevice:
    return "no CUDA-capable device is detected";
  case cudaErrorInvalidDevice:
    return "invalid device ordinal";
  case cudaErrorNotReady:
    return "device not ready";
  case cudaErrorIllegalAddress:
    return "an illegal memory access was encountered";
  default:
    return cudaGetErrorName(error);
  }
}
