// SPDX-License-Identifier: Apache-2.0
//
// The driver's functions for contexts and pointers, as the runtime finds them.
#include <cstring>
#include <map>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "call.hpp"
#include "machine.hpp"

using kolo::emulated::Allocation;
using kolo::emulated::AllocationPtr;
using kolo::emulated::Call;
using kolo::emulated::HostThread;

namespace {

/// What every call but cuInit returns at once.
CUresult refusal_of(Call& call) {
  switch (call.refusal(Call::Needs::no_context)) {
  case cudaSuccess:
    return CUDA_SUCCESS;
  case cudaErrorCudartUnloading:
    return CUDA_ERROR_DEINITIALIZED;
  case cudaErrorMemoryAllocation:
    return CUDA_ERROR_OUT_OF_MEMORY;
  default:
    return CUDA_ERROR_UNKNOWN;
  }
}

CUresult init(unsigned /*flags*/) {
  Call call("cuInit");
  return refusal_of(call);
}

CUresult error_name(CUresult result, const char** name) {
  *name = result == CUDA_ERROR_DEINITIALIZED   ? "CUDA_ERROR_DEINITIALIZED"
          : result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                               : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

CUresult retain_primary(CUcontext* context, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain");
  if (const CUresult refused = refusal_of(call)) return refused;
  if (!call.valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  call.machine.contexts.insert(device);
  *context = static_cast<CUcontext>(HostThread::primary_context(device));
  return CUDA_SUCCESS;
}

CUresult current_context(CUcontext* context) {
  Call call("cuCtxGetCurrent");
  if (const CUresult refused = refusal_of(call)) return refused;
  *context = static_cast<CUcontext>(call.host().context);
  return CUDA_SUCCESS;
}

CUresult push_context(CUcontext context) {
  Call call("cuCtxPushCurrent");
  if (const CUresult refused = refusal_of(call)) return refused;
  HostThread& host = call.host();
  host.below.push_back({host.device, host.context});
  host.context = context;
  host.device = HostThread::device_of(context);
  return CUDA_SUCCESS;
}

CUresult pop_context(CUcontext* context) {
  Call call("cuCtxPopCurrent");
  if (const CUresult refused = refusal_of(call)) return refused;
  HostThread& host = call.host();
  if (host.below.empty()) {
    call.misuse(cudaErrorUnknown, "no context was pushed");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = static_cast<CUcontext>(host.context);
  host.device = host.below.back().device;
  host.context = host.below.back().context;
  host.below.pop_back();
  return CUDA_SUCCESS;
}

/// Zeroes for memory that CUDA does not know.
CUresult pointer_attributes(unsigned count, CUpointer_attribute* wanted, void** found, CUdeviceptr pointer) {
  Call call("cuPointerGetAttributes");
  if (const CUresult refused = refusal_of(call)) return refused;
  const void* const data = reinterpret_cast<const void*>(pointer);
  const AllocationPtr known = call.machine.memory->at(data);
  const bool is_there = known != nullptr && known->live && known->contains(reinterpret_cast<std::uintptr_t>(data));
  for (unsigned i = 0; i < count; ++i) {
    int value = 0;
    if (is_there && wanted[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) value = known->device;
    if (is_there && wanted[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      value = known->kind == Allocation::Kind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    std::memcpy(found[i], &value, sizeof value);
  }
  return CUDA_SUCCESS;
}

cudaError_t find_entry_point(Call& call, const char* name, void** found, cudaDriverEntryPointQueryResult* status) {
  if (const cudaError_t refused = call.refusal(Call::Needs::no_context)) return refused;
  static const std::map<std::string, void*> known{
      {"cuInit", reinterpret_cast<void*>(&init)},
      {"cuGetErrorName", reinterpret_cast<void*>(&error_name)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&retain_primary)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&current_context)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&push_context)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&pop_context)},
      {"cuPointerGetAttributes", reinterpret_cast<void*>(&pointer_attributes)},
  };
  const auto one = known.find(name);
  *found = one == known.end() ? nullptr : one->second;
  if (status != nullptr)
    *status = one == known.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return call.end(cudaSuccess);
}

}  // namespace

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned int /*version*/,
                                             unsigned long long /*flags*/,
                                             enum cudaDriverEntryPointQueryResult* status) {
  Call call("cudaGetDriverEntryPointByVersion");
  return find_entry_point(call, name, found, status);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** found, unsigned long long /*flags*/,
                                    enum cudaDriverEntryPointQueryResult* status) {
  Call call("cudaGetDriverEntryPoint");
  return find_entry_point(call, name, found, status);
}
#endif
