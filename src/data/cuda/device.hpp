// SPDX-License-Identifier: Apache-2.0
//
// What stands between this module and a real device, beside the two vendor libraries: kernel launches. device/device.cu
// implements it with nvcc; the tests put an emulated device in its place, and in that of the libraries.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "data/cuda/call_site.hpp"
#include "data/cuda/move.hpp"

namespace kolo::cuda {

/// Loads every kernel onto the current device: loading one later could deadlock against a running collective. Throws
/// Error(transport).
void load_kernels();
/// Gives one launch of `blocks` blocks to a stream of the current device. Throws Error(transport).
void launch(const Move& move, std::uint32_t blocks, cudaStream_t stream);

/// Asked before every call that only orders work. Always true on a real device; the emulated one leaves out single
/// calls, to see whether their absence is noticed.
bool performs(const char* call, CallSite site) noexcept;
/// Said when the host touches memory that the device reaches too. Nothing on a real device; the emulated one looks
/// whether anything orders that and the device's own accesses.
void host_touches(const void* data, std::size_t bytes, bool writes, const char* what) noexcept;
/// Said before a host function is given to `stream` that tells of the event, as it was recorded last. Nothing on a real
/// device; the emulated one looks whether the stream is held back behind it.
void tells_of(cudaEvent_t event, cudaStream_t stream) noexcept;
/// Said when this thread was told of the end of a device's work by another thread, which had asked the device. Nothing
/// on a real device; the emulated one sees no locks of ours, and would take what follows for unordered.
void host_was_told() noexcept;
/// Said where a lock of ours passes from one thread to the next, with all that the first has heard of the device: what
/// has taken over comes behind what was passed on under the same key. Nothing on a real device, likewise.
void host_passes_on(const void* key) noexcept;
void host_takes_over(const void* key) noexcept;

/// One of the threads that take turns in driving what `key` names.
class TurnOfDriver {
 public:
  explicit TurnOfDriver(const void* key) noexcept : key_(key) { host_takes_over(key_); }
  ~TurnOfDriver() { host_passes_on(key_); }
  TurnOfDriver(const TurnOfDriver&) = delete;
  TurnOfDriver& operator=(const TurnOfDriver&) = delete;

 private:
  const void* const key_;
};

}  // namespace kolo::cuda
