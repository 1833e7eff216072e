// SPDX-License-Identifier: Apache-2.0

/// @file
/// Durations of any unit as nanoseconds, without overflow.
#ifndef KOLO_DETAIL_DURATION_HPP
#define KOLO_DETAIL_DURATION_HPP

#include <chrono>

namespace kolo::detail {

/// Durations that nanoseconds cannot hold become the longest ones; not a number becomes the most negative one.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds to_nanoseconds(std::chrono::duration<Rep, Period> duration) {
  using std::chrono::nanoseconds;
  const std::chrono::duration<long double, std::nano> exact = duration;
  if (exact.count() >= static_cast<long double>(nanoseconds::max().count())) return nanoseconds::max();
  if (!(exact.count() > static_cast<long double>(nanoseconds::min().count()))) return nanoseconds::min();
  return std::chrono::duration_cast<nanoseconds>(duration);
}

}  // namespace kolo::detail

#endif  // KOLO_DETAIL_DURATION_HPP
