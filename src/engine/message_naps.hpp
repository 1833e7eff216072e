// SPDX-License-Identifier: Apache-2.0
//
// How long the background thread leaves messages to the threads that wait for them. A thread that has begun a message
// mostly waits for it soon, and moves it itself; the background thread looks after a nap. Waking up takes a CPU from
// such a thread: 58 us of every millisecond were measured in a virtual machine. So where calls keep coming, naps become
// longer, and a program that stops calling has its messages looked at so much later, once.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"

namespace kolo::engine {

class MessageNaps {
 public:
  static constexpr std::chrono::milliseconds kShortest{1};
  static constexpr std::chrono::milliseconds kLongest{4};

  /// The nap that a call begins now, as none is under way.
  [[nodiscard]] std::chrono::milliseconds next(base::Time now) noexcept {
    const bool calls_keep_coming = began_ != base::Time() && now - began_ < 2 * nap_;
    nap_ = calls_keep_coming ? std::min(2 * nap_, kLongest) : kShortest;
    began_ = now;
    return nap_;
  }

 private:
  base::Time began_{};
  std::chrono::milliseconds nap_ = kShortest;
};

}  // namespace kolo::engine
