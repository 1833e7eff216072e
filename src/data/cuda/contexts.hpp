// SPDX-License-Identifier: Apache-2.0
//
// In which of CUDA's contexts a thread works. A process has a *primary* context on each device that it uses. The CUDA
// runtime works there, and it takes some 500 MiB of the device. A call of the runtime on a thread without a context
// makes that of the thread's current device, which is 0 where nobody has chosen another; cudaSetDevice makes it
// always, also where it only goes back. With a rank for each GPU, every rank would have a context on the first one.
//
// So a thread of Kolo's, or of a caller's while it is inside Kolo, works in the primary context of the rank's own
// device: the driver's calls push it, and pop it again. They make no other, and go back to a context that is not
// primary, too.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>

#include "base/mutex.hpp"

namespace kolo::cuda {

/// The calls of CUDA's driver that Kolo makes. Any thread.
struct DriverCalls {
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*error_name)(CUresult, const char**) = nullptr;
  CUresult (*retain_primary)(CUcontext*, CUdevice) = nullptr;
  CUresult (*current_context)(CUcontext*) = nullptr;
  CUresult (*push_context)(CUcontext) = nullptr;
  CUresult (*pop_context)(CUcontext*) = nullptr;
  CUresult (*pointer_attributes)(unsigned, CUpointer_attribute*, void**, CUdeviceptr) = nullptr;
};
/// As the runtime finds them, without a context. Throws Error (transport).
[[nodiscard]] DriverCalls find_driver_calls();

/// The device on which memory lies (managed memory: the device it was allocated for), or -1 for memory of the host.
/// Makes no context, unlike the runtime's call for this.
[[nodiscard]] int device_holding(const void* memory, const DriverCalls& driver);

/// A device's primary context. It is made when the first thread goes there, and not given back: as the runtime's, it
/// lasts as long as the process. Any thread.
class PrimaryContext {
 public:
  explicit PrimaryContext(int device) noexcept : device_(device) {}
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  friend class DeviceGuard;
  /// Throws Error (transport).
  void make() const;

  const int device_;
  mutable std::atomic<bool> is_made_{false};
  mutable base::Mutex making_;
  mutable DriverCalls driver_;  // constant once it is made, as what follows
  mutable CUcontext raw_ = nullptr;
};
using PrimaryContextPtr = std::shared_ptr<const PrimaryContext>;

/// Makes a device the thread's current one, and what was current before again at the end. Meanwhile a program may
/// capture its streams into graphs: by default a capture forbids every thread to ask events, allocate and the like, and
/// ends when one does, although ours have nothing to do with it. A thread of Kolo's own has one for as long as it runs.
class DeviceGuard {
 public:
  /// `context` outlives it. Throws Error (transport).
  explicit DeviceGuard(const PrimaryContext& context);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const PrimaryContext& context_;
  bool pushed_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // then the former one
  bool relaxed_ = false;
};

}  // namespace kolo::cuda
