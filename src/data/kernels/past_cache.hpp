// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace kolo::kernels {

/// Sums of `of_sums` bytes and more are written past the cache. This is from how many bytes on copies are, by each of
/// the ranks that share a cache. A copy is as fast into the cache as past it while all that the ranks copy has room
/// there.
///
/// With a cache of 480 MiB an all-gather of 4 MiB took 2 ranks 330 us instead of 480, one of 16 MiB 1.3 ms instead of
/// 2.0, but one of 64 MiB 13 instead of 9: so large a cache has other users, too. The same holds for the sums of a
/// reduce whose root reads the others' memory: 4 and 16 MiB took 2 ranks 5 to 10 % less into the cache, and 64 MiB half
/// as long again. With one of 32 MiB an all-gather of 4 MiB took 115 to 220 us instead of 220 to 270, one of 8 MiB 370
/// to 470 instead of 560 to 600, and one of 16 MiB the same.
inline std::size_t copied_past_cache_bytes(std::size_t of_sums, std::size_t shared_cache_bytes, int ranks) {
  constexpr std::size_t kOwn = std::size_t{32} << 20;  // a cache of no more is taken for that of these ranks alone
  const std::size_t all = std::max(shared_cache_bytes / 8, std::min(shared_cache_bytes, kOwn));
  return std::max(of_sums, all / static_cast<std::size_t>(ranks));
}

}  // namespace kolo::kernels
