// SPDX-License-Identifier: Apache-2.0
//
// Every number of the data plane that another machine may want different. Each is a setting (base/settings.hpp), whose
// help says what it does; here stands why its default is what it is. The same on all ranks: chunks are cut by them.
#pragma once

#include <algorithm>
#include <cstddef>

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

/// KOLO_SLOT_BYTES, when it is 0. Two forces: a slot that is small stays in its core's own (second-level) cache between
/// fill, reduce and take; one that is large gives the memory's prefetchers long rows to run along, which counts most
/// for tensors in an arena, and fewer meetings. Measured with 1 MiB of cache a core: at 2 ranks 64 MiB from an arena
/// take half the time with slots of 256 KiB that they take with 64 KiB; with more ranks more slots are in use at once,
/// and rows are longer anyway. The number of slots hardly matters to the cache, for all but the chunks under way are
/// cold; it lets a rank run ahead of a slower one.
inline std::size_t choose_slot_bytes(std::size_t cache_bytes, int local_ranks) {
  const std::size_t fair = cache_bytes / (local_ranks <= 2 ? 4 : local_ranks <= 4 ? 8 : 16);
  return std::clamp<std::size_t>(fair / 4096 * 4096, 32 << 10, 256 << 10);
}

}  // namespace kolo::hierarchy
