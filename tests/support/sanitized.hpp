// SPDX-License-Identifier: Apache-2.0
//
// Sanitizers make every step of a test many times as long. Where a test repeats the same at random, or in many sizes,
// it takes fewer of them there: the release build runs them all.
#pragma once

namespace kolo::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// How many, or which, in this build.
template <class T>
constexpr T unless_sanitized(T usual, T sanitized) {
  return kSanitized ? sanitized : usual;
}

}  // namespace kolo::testing
