// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kolo::base {

/// Bytes of a cache line: 64 on x86-64; a constant of ours, because the standard's depends on compiler flags.
inline constexpr std::size_t kCacheLine = 64;

/// Asks for the lines of [begin, begin + bytes) to read. A hint, which may point anywhere.
inline void fetch_lines(const void* begin, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const char*>(begin);
#if defined(__x86_64__)
  // Not __builtin_prefetch: GCC takes a function that does nothing else for one without effect, and leaves out the
  // call.
  for (std::size_t at = 0; at < bytes; at += kCacheLine) asm volatile("prefetcht0 %0" : : "m"(first[at]));
#else
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at);
#endif
}

/// Asks for the lines of [begin, begin + bytes) as their only owner: they will be written soon, and other cores have
/// read them. A hint, which may point anywhere.
inline void claim_lines(const void* begin, std::size_t bytes) noexcept {
  const auto* const first = static_cast<const char*>(begin);
#if defined(__x86_64__)
  // Not __builtin_prefetch: compilers make a shared prefetch of it unless told that the processor has this one.
  for (std::size_t at = 0; at < bytes; at += kCacheLine) asm volatile("prefetchw %0" : : "m"(first[at]));
#else
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at, 1);
#endif
}

}  // namespace kolo::base
