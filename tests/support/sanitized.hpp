// SPDX-License-Identifier: Apache-2.0
//
// Sanitizers make every step of a test many times as long. They check which code runs and in what order, and for that
// a few values do as well as many. So tests that repeat random steps, or go through a matrix, take fewer of them there;
// the release build runs them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo::testing {

#ifdef __SANITIZE_THREAD__
constexpr bool kThreadsSanitized = true;
#else
constexpr bool kThreadsSanitized = false;
#endif
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = kThreadsSanitized;
#endif

/// How many, or which, in this build.
template <class T>
constexpr T unless_sanitized(T usual, T sanitized) {
  return kSanitized ? sanitized : usual;
}

/// These, and in a build without sanitizers those, too.
template <class T>
std::vector<T> and_unless_sanitized(std::vector<T> all, const std::vector<T>& more) {
  if (!kSanitized) all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Of so many random steps or worlds, or cells of a matrix, a sanitizer's build takes one in this many.
constexpr unsigned kOneIn = unless_sanitized(1U, 5U);

template <class T>
constexpr T share_of(T usual) {
  return usual / static_cast<T>(kOneIn);
}

/// Whether this cell of a matrix is among them: drawn, so that the cells that are have every value of each dimension.
constexpr bool is_taken(std::size_t cell) {
  auto bits = static_cast<std::uint32_t>(cell) + 1;
  for (int i = 0; i < 2; ++i) bits = (bits ^ bits >> 16) * 0x45d9f3bU;
  return (bits ^ bits >> 16) % kOneIn == 0;
}

}  // namespace kolo::testing
