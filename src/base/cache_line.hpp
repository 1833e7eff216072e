// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kolo::base {

/// Bytes of a cache line: 64 on x86-64; a constant of ours, because the standard's depends on compiler flags.
inline constexpr std::size_t kCacheLine = 64;

/// Has the cache fetch memory that will be written soon, and is not empty. A hint: null is allowed.
inline void fetch_early(const void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  const auto* const first = static_cast<const char*>(memory);
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(first + at, 1);
  __builtin_prefetch(first + bytes - 1, 1);  // it may begin amid a line
}

}  // namespace kolo::base
