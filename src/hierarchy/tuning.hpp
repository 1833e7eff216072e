// SPDX-License-Identifier: Apache-2.0
//
// Every number of the data plane that another machine may want different. Each is a setting (base/settings.hpp), whose
// help says what it does; here stands why its default is what it is. The same on all ranks: chunks are cut by them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace kolo::hierarchy {

struct Tuning {
  /// KOLO_FLAT_BYTES. Flat, every rank reads all of every other's chunk, which crosses cores n-1 times instead of
  /// twice, but meets once instead of twice. A meeting costs some hundred nanoseconds, the time in which 8 KiB cross.
  std::size_t flat_bytes = 8 << 10;
  /// KOLO_CHUNK_BYTES. A stream shorter than the slots together is cut into smaller chunks than slots, so that its
  /// stages overlap, but not into smaller ones than this: a chunk costs two meetings.
  std::size_t least_chunk_bytes = 32 << 10;
  /// KOLO_PAST_CACHE_BYTES. Outputs elsewhere than the inputs, of runs of this size or more, are written past the
  /// cache: they are not in it, and fetching their lines first costs as much again as writing them. In place they are
  /// in the second-level cache from being read a few chunks ago, and the caller's next step may use small ones soon.
  std::size_t past_cache_bytes = 4 << 20;
};

/// KOLO_SLOT_BYTES, when it is 0. A core should keep in its own (second-level) cache the slots that its rank fills and
/// those of the peers that it reads meanwhile, with as much room again for the tensors that stream through; with
/// several ranks a core, all of theirs. `cpus` and `local_ranks` as for base::choose_wait_policy.
inline std::size_t choose_slot_bytes(std::size_t cache_bytes, std::uint64_t slots, int local_ranks) {
  // Half the cache, for the own and one peer's slots; at more than four ranks half of that, as there are hardly ever
  // cores for more ranks than that with a cache to themselves that their peers' slots do not pass through.
  const std::size_t share = cache_bytes / 4 / slots / (local_ranks > 4 ? 2 : 1);
  return std::clamp<std::size_t>(share / 4096 * 4096, 32 << 10, 512 << 10);
}

}  // namespace kolo::hierarchy
