// SPDX-License-Identifier: Apache-2.0
//
// Events that go from hand to hand: from a caller's thread to the engine (where his stream stood when he submitted),
// and back (when a batch is complete). Making an event is slow, so they are used again. And how they wake the
// engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
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
  /// Calls CUDA once for a stream, however many operations of a batch it waits for.
  void hold_back(Stream stream) const override;
  /// The stream of Kolo's, which is of the same device and current, as it is now.
  void mark(const OwnStream& stream, CallSite site = CallSite::here());
  /// A caller's stream likewise. Its events of one thread and one stream are ordered: `replaces`.
  void mark_of_caller(cudaStream_t stream, CallSite site = CallSite::here());
  [[nodiscard]] const Event& event() const noexcept { return event_; }

  /// Whether the two stand for the same stream of the same thread's, of which this is the later point.
  [[nodiscard]] bool replaces(const PooledEvent& other) const noexcept {
    return stream_ == other.stream_ && thread_ == other.thread_ && count_ > other.count_;
  }

 private:
  friend class EventPool;
  static constexpr std::uint64_t kNoStream = ~std::uint64_t{0};

  const PrimaryContextPtr context_;
  Event event_;
  std::thread::id thread_;                                  // of a caller's stream: who recorded
  std::uint64_t stream_ = kNoStream;                        // which one
  std::uint64_t count_ = 0;                                 // how many the pool had given away by then
  mutable std::atomic<std::uint64_t> follower_{kNoStream};  // the stream that was held back last
};

/// Those of a batch's that are not replaced by others of it.
[[nodiscard]] std::vector<const PooledEvent*> last_points(const std::vector<data::DeviceEventPtr>& events);

/// One device's. Any thread.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  explicit EventPool(PrimaryContextPtr context) noexcept : context_(std::move(context)) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();
  /// One that nobody holds; it comes back when the last holder lets go. The device is current.
  [[nodiscard]] std::shared_ptr<PooledEvent> take();

 private:
  void give_back(std::unique_ptr<PooledEvent> event) noexcept;

  const PrimaryContextPtr context_;
  base::Mutex mutex_;
  std::vector<std::unique_ptr<PooledEvent>> free_ KOLO_GUARDED_BY(mutex_);
  std::uint64_t taken_ KOLO_GUARDED_BY(mutex_) = 0;
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
