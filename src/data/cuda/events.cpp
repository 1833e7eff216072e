// SPDX-License-Identifier: Apache-2.0
#include "data/cuda/events.hpp"

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
  event_.hold_back(native(stream));
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

std::shared_ptr<const PooledEvent> EventPool::take() {
  std::unique_ptr<PooledEvent> event;
  {
    const base::MutexLock lock(mutex_);
    if (!free_.empty()) {
      event = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (!event) event = std::make_unique<PooledEvent>(context_);
  return {event.release(), [pool = shared_from_this()](const PooledEvent* used) {
            pool->give_back(std::unique_ptr<PooledEvent>(const_cast<PooledEvent*>(used)));
          }};
}

void EventPool::give_back(std::unique_ptr<PooledEvent> event) noexcept {
  const base::MutexLock lock(mutex_);
  free_.push_back(std::move(event));
}

}  // namespace kolo::cuda
