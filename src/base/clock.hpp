// SPDX-License-Identifier: Apache-2.0
//
// The one clock that deadlines and durations are measured with.
#pragma once

#include <chrono>

namespace kolo::base {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;

inline Time now() noexcept { return Clock::now(); }

/// Seconds as a duration; what does not fit saturates at about 146 years.
inline constexpr Duration from_seconds(double seconds) noexcept {
  constexpr double kMost = static_cast<double>(Duration::max().count()) / 2;
  const double ticks = seconds * (static_cast<double>(Duration::period::den) / Duration::period::num);
  if (ticks >= kMost) return Duration(Duration::max().count() / 2);
  if (ticks <= -kMost) return Duration(-(Duration::max().count() / 2));
  return Duration(static_cast<Duration::rep>(ticks));
}

/// `time + duration`, or the last (first) representable time. Safe for every duration that a user may give.
inline constexpr Time after(Time time, Duration duration) noexcept {
  Duration::rep ticks = 0;
  if (__builtin_add_overflow(time.time_since_epoch().count(), duration.count(), &ticks)) {
    return duration < Duration::zero() ? Time::min() : Time::max();
  }
  return Time(Duration(ticks));
}

inline constexpr double to_seconds(Duration duration) noexcept {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace kolo::base
