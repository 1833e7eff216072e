// SPDX-License-Identifier: Apache-2.0
//
// Events that go from hand to hand: from a caller's thread to the engine (where his stream stood when he submitted),
// and back (when a batch is complete). Making an event is slow, so they are used again. And how they wake the
// engine.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "data/cuda/contexts.hpp"
#include "data/cuda/cuda_api.hpp"
#include "data/device.hpp"

namespace kolo::cuda {

/// What the stream's handle, in kolo's words, is in CUDA's.
inline cudaStream_t native(Stream stream) noexcept { return static_cast<cudaStream_t>(stream.native); }

/// Throws Error (invalid_argument) while the stream is being captured. The device is current.
void refuse_capture(cudaStream_t stream);

class EventPool;

class PooledEvent final : public data::DeviceEvent {
 public:
  explicit PooledEvent(PrimaryContextPtr context) : context_(std::move(context)) {}
  void hold_back(Stream stream) const override;
  [[nodiscard]] const Event& event() const noexcept { return event_; }

 private:
  const PrimaryContextPtr context_;
  Event event_;
};

/// One device's. Any thread.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(PrimaryContextPtr context) noexcept : context_(std::move(context)) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();
  /// One that nobody holds; it comes back when the last holder lets go. The device is current.
  [[nodiscard]] std::shared_ptr<const PooledEvent> take();

 private:
  void give_back(std::unique_ptr<PooledEvent> event) noexcept;

  const PrimaryContextPtr context_;
  base::Mutex mutex_;
  std::vector<std::unique_ptr<PooledEvent>> free_ KOLO_GUARDED_BY(mutex_);
};

/// Wakes the engine when the device has come to a point. From a stream of its own, because a host function would hold
/// up the next portion on any other. The driver's; the device is current.
class Bell {
 public:
  /// `ring` outlives the device's work.
  explicit Bell(const std::function<void()>& ring) : ring_(ring) {}
  void ring_behind(const Event& event) const {
    event.hold_back(stream_.get().raw());
    stream_.get().call_on_host(call, const_cast<std::function<void()>*>(&ring_), event);
  }
  [[nodiscard]] const LateStream& stream() const noexcept { return stream_; }

 private:
  static void call(void* ring) { (*static_cast<const std::function<void()>*>(ring))(); }

  const std::function<void()>& ring_;
  LateStream stream_;
};

}  // namespace kolo::cuda
