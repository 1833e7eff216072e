// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/contexts.hpp"

#include <string>

#include <kolo/error.hpp>

#include "data/cuda/cuda_api.hpp"

namespace kolo::cuda {
namespace {

/// The release of CUDA whose forms of the calls are wanted.
constexpr unsigned kForm = 12000;

void* entry_point(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(name, &found, kForm, cudaEnableDefault, &status),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status), "cudaGetDriverEntryPoint");
#endif
  if (status == cudaDriverEntryPointSuccess && found != nullptr) return found;
  throw Error(ErrorCode::transport, "CUDA's driver has no " + std::string(name) + ": Kolo needs one for CUDA 12");
}

template <class Function>
void find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(entry_point(name));
}

void check(CUresult result, const char* call, const DriverCalls& driver) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (driver.error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
  throw Error(result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::transport,
              std::string(call) + " failed: " + name);
}

}  // namespace

DriverCalls find_driver_calls() {
  DriverCalls calls;
  find(calls.init, "cuInit");
  find(calls.error_name, "cuGetErrorName");
  find(calls.retain_primary, "cuDevicePrimaryCtxRetain");
  find(calls.current_context, "cuCtxGetCurrent");
  find(calls.push_context, "cuCtxPushCurrent");
  find(calls.pop_context, "cuCtxPopCurrent");
  find(calls.pointer_attributes, "cuPointerGetAttributes");
  check(calls.init(0), "cuInit", calls);
  return calls;
}

int device_holding(const void* memory, const DriverCalls& driver) {
  unsigned type = 0;
  unsigned is_managed = 0;
  int device = -1;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* found[] = {&type, &is_managed, &device};
  check(driver.pointer_attributes(3, wanted, found, reinterpret_cast<CUdeviceptr>(memory)), "cuPointerGetAttributes",
        driver);
  return type == CU_MEMORYTYPE_DEVICE || is_managed != 0 ? device : -1;
}

void PrimaryContext::make() const {
  if (is_made_.load(std::memory_order_acquire)) return;
  const base::MutexLock lock(making_);
  if (is_made_.load(std::memory_order_relaxed)) return;
  driver_ = find_driver_calls();
  check(driver_.retain_primary(&raw_, device_), "cuDevicePrimaryCtxRetain", driver_);
  is_made_.store(true, std::memory_order_release);
}

DeviceGuard::DeviceGuard(const PrimaryContext& context) : context_(context) {
  context.make();
  const DriverCalls& driver = context.driver_;
  CUcontext now = nullptr;
  check(driver.current_context(&now), "cuCtxGetCurrent", driver);
  if (now != context.raw_) {
    check(driver.push_context(context.raw_), "cuCtxPushCurrent", driver);
    pushed_ = true;
  }
  // Refused only by a device that has failed, and then nothing is captured.
  relaxed_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

/// After a fault the driver refuses this, too, and there is nobody to tell.
DeviceGuard::~DeviceGuard() {
  if (relaxed_) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_));
  CUcontext own = nullptr;
  if (pushed_) static_cast<void>(context_.driver_.pop_context(&own));
}

}  // namespace kolo::cuda
