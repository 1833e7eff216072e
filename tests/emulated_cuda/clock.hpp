// SPDX-License-Identifier: Apache-2.0
//
// Vector clocks: who has heard of what. An actor is a stream or a host thread; its time counts what it has done. A
// clock holds, for each actor, up to which of its doings the clock's owner comes after. What an actor did at time t
// happens before what carries clock c exactly when c.at(actor) >= t.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo::emulated {

using ActorId = std::uint32_t;

class VectorClock {
 public:
  std::uint64_t at(ActorId actor) const noexcept { return actor < times_.size() ? times_[actor] : 0; }

  /// From now on the owner comes after all that `other` comes after.
  void join(const VectorClock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

  /// Whether the owner comes after all that `other` comes after.
  bool covers(const VectorClock& other) const noexcept {
    for (std::size_t i = 0; i < other.times_.size(); ++i) {
      if (at(static_cast<ActorId>(i)) < other.times_[i]) return false;
    }
    return true;
  }

  /// The actor whose clock this is does one more thing; its time is returned.
  std::uint64_t tick(ActorId actor) {
    if (times_.size() <= actor) times_.resize(actor + std::size_t{1});
    return ++times_[actor];
  }

 private:
  std::vector<std::uint64_t> times_;
};

}  // namespace kolo::emulated
