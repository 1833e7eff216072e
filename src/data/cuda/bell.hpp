// SPDX-License-Identifier: Apache-2.0
//
// Wakes the engine when the device has come to a point. From a stream of its own, because a host function would hold up
// the next portion on any other.
//
// The driver's; the device is current.
#pragma once

#include <functional>

#include "data/cuda/cuda_api.hpp"

namespace kolo::cuda {

class Bell {
 public:
  /// `ring` outlives the device's work.
  explicit Bell(const std::function<void()>& ring) : ring_(ring) {}
  void ring_behind(const Event& event) const {
    event.hold_back(stream_.raw());
    stream_.call_on_host(call, const_cast<std::function<void()>*>(&ring_), event);
  }
  [[nodiscard]] const OwnStream& stream() const noexcept { return stream_; }

 private:
  static void call(void* ring) { (*static_cast<const std::function<void()>*>(ring))(); }

  const std::function<void()>& ring_;
  OwnStream stream_;
};

}  // namespace kolo::cuda
