// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/events.hpp"

#include <algorithm>
#include <utility>

#include <kolo/error.hpp>

namespace kolo::cuda {

void refuse_capture(cudaStream_t stream) {
  if (!is_capturing(stream)) return;
  throw Error(ErrorCode::invalid_argument,
              "the stream is being captured into a CUDA graph: a collective cannot be part of a graph, because ranks "
              "agree anew each time on when it runs. End the capture before the call, and make the call beside the "
              "launch of the graph");
}

void PooledEvent::hold_back(Stream stream) const {
  const DeviceGuard guard(*context_);
  refuse_capture(native(stream));
  // The default streams of all threads have this handle.
  const std::uint64_t number = native(stream) == cudaStreamPerThread ? kNoStream : number_of(native(stream));
  if (number != kNoStream && follower_.load(std::memory_order_acquire) == number) return;
  event_.hold_back(native(stream));
  follower_.store(number, std::memory_order_release);
}

void PooledEvent::mark(const OwnStream& stream, CallSite site) {
  stream_ = kNoStream;
  follower_.store(kNoStream, std::memory_order_relaxed);
  event_.record(stream.raw(), site);
}

void PooledEvent::mark_of_caller(cudaStream_t stream, CallSite site) {
  thread_ = std::this_thread::get_id();
  stream_ = number_of(stream);
  follower_.store(kNoStream, std::memory_order_relaxed);
  event_.record(stream, site);
}

std::vector<const PooledEvent*> last_points(const std::vector<data::DeviceEventPtr>& events) {
  std::vector<const PooledEvent*> last;
  for (const data::DeviceEventPtr& one : events) {
    const auto& event = static_cast<const PooledEvent&>(*one);
    const auto known = std::find_if(last.begin(), last.end(), [&event](const PooledEvent* other) {
      return event.replaces(*other) || other->replaces(event);
    });
    if (known == last.end()) {
      last.push_back(&event);
    } else if (event.replaces(**known)) {
      *known = &event;
    }
  }
  return last;
}

/// On the thread of the last holder, which may have no context.
EventPool::~EventPool() {
  const base::MutexLock lock(mutex_);
  if (free_.empty()) return;  // there may be no context
  try {
    const DeviceGuard guard(*context_);
    free_.clear();
  } catch (const Error&) {
    // The device has failed, or CUDA has been unloaded: nothing is left to be given back.
  }
}

std::shared_ptr<PooledEvent> EventPool::take() {
  std::unique_ptr<PooledEvent> event;
  std::uint64_t count = 0;
  {
    const base::MutexLock lock(mutex_);
    count = ++taken_;
    if (!free_.empty()) {
      event = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (!event) event = std::make_unique<PooledEvent>(context_);
  event->count_ = count;
  return {event.release(),
          [pool = shared_from_this()](PooledEvent* used) { pool->give_back(std::unique_ptr<PooledEvent>(used)); }};
}

void EventPool::give_back(std::unique_ptr<PooledEvent> event) noexcept {
  const base::MutexLock lock(mutex_);
  free_.push_back(std::move(event));
}

}  // namespace kolo::cuda
