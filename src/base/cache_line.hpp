// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kolo::base {

/// Bytes of a cache line: 64 on x86-64. Kolo's own constant, because the standard's depends on compiler flags.
inline constexpr std::size_t kCacheLine = 64;

/// Fetches the lines of [begin, begin + bytes) for reading. A hint, which may point anywhere.
inline void fetch_lines(const void* begin, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const char*>(begin);
#if defined(__x86_64__)
  // Not __builtin_prefetch: GCC considers a function that does nothing else to have no effect, and removes the call.
  for (std::size_t at = 0; at < bytes; at += kCacheLine) asm volatile("prefetcht0 %0" : : "m"(first[at]));
#else
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at);
#endif
}

/// Fetches the lines of [begin, begin + bytes) for writing, and takes them from other cores that have read them. A
/// hint, which may point anywhere.
inline void claim_lines(const void* begin, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const char*>(begin);
#if defined(__x86_64__)
  // Not __builtin_prefetch: compilers turn it into a prefetch for reading unless they know that the processor has this
  // one.
  for (std::size_t at = 0; at < bytes; at += kCacheLine) asm volatile("prefetchw %0" : : "m"(first[at]));
#else
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at, 1);
#endif
}

}  // namespace kolo::base
