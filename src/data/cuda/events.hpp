// SPDX-License-Identifier: Apache-2.0
//
// Events that go from hand to hand: from a caller's thread to the engine (where his stream stood when he submitted),
// and back (when a batch is complete). Making an event is slow, so they are used again.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/device.hpp"

namespace kolo::cuda {

/// What the stream's handle, in kolo's words, is in CUDA's.
inline cudaStream_t native(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.native); }

/// Throws Error (invalid_argument) while the stream is being captured. The device is current, where the stream is null.
void refuse_capture(cudaStream_t stream);

class EventPool;

class PooledEvent final : public data::DeviceEvent {
 public:
  explicit PooledEvent(int device) : device_(device) {}
  void hold_back(Stream stream) const override;
  [[nodiscard]] const Event& event() const noexcept { return event_; }

 private:
  const int device_;
  Event event_;
};

/// One device's. Any thread.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(int device) : device_(device) {}
  /// One that nobody holds; it comes back when the last holder lets go. The device is current.
  [[nodiscard]] std::shared_ptr<const PooledEvent> take();

 private:
  void give_back(std::unique_ptr<PooledEvent> event) noexcept;

  const int device_;
  base::Mutex mutex_;
  std::vector<std::unique_ptr<PooledEvent>> free_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::cuda
