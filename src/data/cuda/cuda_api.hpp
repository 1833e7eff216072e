// SPDX-License-Identifier: Apache-2.0
//
// Every call of the CUDA runtime that Kolo makes but for kernel launches (device.hpp), in C++ manners: results checked,
// failures thrown as an Error(transport) that names the call and has CUDA's own text. Nothing here decides anything.
//
// Threads: as the runtime's own calls, any. All of them leave the caller's current device as it was; those that work on
// the current device say so, and are made inside a DeviceGuard (contexts.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "data/cuda/call_site.hpp"

namespace kolo::cuda {

/// Throws Error(transport) unless the result is success.
void check(cudaError_t result, const char* call);

// ---------------------------------------------------------------- devices

struct DeviceCount {
  int devices = 0;
  std::string why;  ///< with none: CUDA's sentence
};
/// Never throws for a machine without a driver or a device: that is an answer.
[[nodiscard]] DeviceCount count_devices();
[[nodiscard]] int current_device();
/// Whether CUDA has gone before us, at the end of a process: its calls are errors from now on, and NCCL's would crash.
[[nodiscard]] bool is_unloaded() noexcept;
/// For `cuda::bind` alone, whose purpose this is.
void set_current_device(int device);

struct DeviceInfo {
  std::string name;  ///< "NVIDIA H200"
  std::string uuid;  ///< 32 hexadecimal digits; of an instance, where a device is divided into several
  std::string bus;   ///< "0000:17:00", of this machine; instances of one device have the same
  int processors = 0;
};
[[nodiscard]] DeviceInfo device_info(int device);
/// "13.0".
[[nodiscard]] std::string runtime_version();

// ---------------------------------------------------------------- streams and events

/// Whether work given to the stream would go into a graph instead of running. Of the current device.
[[nodiscard]] bool is_capturing(cudaStream_t stream);

/// A number that no other stream of the process has or had, whatever handle it has; of the calling thread, for its own
/// default stream. Of the current device.
[[nodiscard]] std::uint64_t number_of(cudaStream_t stream);

/// Blocks until all that the stream was given is done.
void wait_for(cudaStream_t stream);

/// Gives back what CUDA has given. After a fault the device refuses that, too, and there is nobody to tell.
struct GiveBack {
  void operator()(cudaStream_t stream) const noexcept;
  void operator()(cudaEvent_t event) const noexcept;
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, GiveBack>;

class Event;

/// A stream of our own: does not wait for the legacy default stream, and has the highest priority. Of the current
/// device. Movable.
class OwnStream {
 public:
  OwnStream();
  [[nodiscard]] cudaStream_t raw() const noexcept { return raw_.get(); }
  /// Blocks until all its work is done.
  void synchronize(CallSite site = CallSite::here()) const;
  /// Runs `function(argument)` on a thread of the driver's once what was given to the stream before has run: this
  /// stream is held back behind the event, of which the function tells. It makes no CUDA call. May not be called at all
  /// after an error on the device.
  void call_on_host(cudaHostFn_t function, void* argument, const Event& told_of) const;

 private:
  Owned<cudaStream_t> raw_;
};

/// A stream of our own that is made when it is first asked for, and then of the current device. One thread at a time.
class LateStream {
 public:
  [[nodiscard]] const OwnStream& get() const {
    if (!stream_) stream_.emplace();
    return *stream_;
  }
  /// Null: nobody has asked for it.
  [[nodiscard]] const OwnStream* if_made() const noexcept { return stream_ ? &*stream_ : nullptr; }

 private:
  mutable std::optional<OwnStream> stream_;
};

/// A point in a stream's work. Carries no time. Of the current device. Movable.
class Event {
 public:
  Event();
  /// The stream, of the same device, as it is now. For the default streams that device must be current.
  void record(cudaStream_t stream, CallSite site = CallSite::here()) const;
  /// What is given to `stream` from now on runs after the point that was recorded last. Does not block the host.
  void hold_back(cudaStream_t stream, CallSite site = CallSite::here()) const;
  /// Whether the point has been reached. Never recorded: yes.
  [[nodiscard]] bool reached(CallSite site = CallSite::here()) const;

 private:
  friend class OwnStream;
  Owned<cudaEvent_t> raw_;
};

/// A point in a stream's work that knows when it was reached. It orders nothing. Of the current device. Movable.
class TimedEvent {
 public:
  TimedEvent();
  /// The stream, of the same device, as it is now.
  void stamp(cudaStream_t stream) const;
  [[nodiscard]] bool is_reached() const;
  /// From the other to this one; negative, if this one was first. Both have been reached.
  [[nodiscard]] std::chrono::nanoseconds since(const TimedEvent& other) const;

 private:
  Owned<cudaEvent_t> raw_;
};

// ---------------------------------------------------------------- memory

/// Between any two places; the host's must be pinned to be asynchronous.
void copy_async(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

/// From the device to memory of the host that need not be pinned, as the stream's next work; blocks until it is there.
/// Where the stream has much to do, `wait_for` comes first: such a copy may hold locks of the driver while it waits.
void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

void zero_async(void* data, std::size_t bytes, cudaStream_t stream);

/// Memory, and how it is given back. Movable.
template <class Free>
class OwnMemory {
 public:
  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

 protected:
  void hold(void* memory, std::size_t bytes) noexcept {
    memory_.reset(static_cast<std::byte*>(memory));
    bytes_ = bytes;
  }

 private:
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

struct FreeDevice {
  void operator()(std::byte* memory) const noexcept;
};
/// Of the current device.
class DeviceMemory : public OwnMemory<FreeDevice> {
 public:
  DeviceMemory() noexcept = default;
  explicit DeviceMemory(std::size_t bytes);
  /// Blocks until the device has done all that any stream was given, and frees it. (That freeing waits is what tells
  /// when the device is done also while a stream is captured: CUDA refuses cudaDeviceSynchronize then.)
  void free_when_idle(CallSite site = CallSite::here());
};

struct FreePinned {
  void operator()(std::byte* memory) const noexcept;
};
/// Of the host; devices reach it directly.
class PinnedMemory : public OwnMemory<FreePinned> {
 public:
  PinnedMemory() noexcept = default;
  explicit PinnedMemory(std::size_t bytes);
};

}  // namespace kolo::cuda
