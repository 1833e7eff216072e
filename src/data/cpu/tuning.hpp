// SPDX-License-Identifier: Apache-2.0
//
// Every number of the data plane that another machine may want different, but for those of the routes (routes.hpp).
// Each is a setting (base/settings.hpp), whose
// help says what it does; here stands why its default is what it is. The same on all ranks: chunks are cut by them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "data/kernels/copy.hpp"

namespace kolo::data::cpu {

struct Tuning {
  /// KOLO_CHUNK_BYTES. A run shorter than the slots together is cut into smaller chunks than slots, so that its
  /// stages overlap, but not into smaller ones than this: a chunk costs two meetings.
  std::size_t least_chunk_bytes = 32 << 10;
  /// KOLO_PAST_CACHE_BYTES. Outputs elsewhere than the inputs, of runs of this size or more, are written past the
  /// cache: they are not in it, and fetching their lines first costs as much again as writing them. In place they are
  /// in the second-level cache from being read a few chunks ago, and the caller's next step may use small ones soon.
  std::size_t past_cache_bytes = 4 << 20;
  /// The same of what is copied as it is: broadcasts, gathers, all-to-alls (`copied_past_cache_bytes`, below).
  std::size_t copied_past_cache_bytes = 4 << 20;
  /// KOLO_STEP_BYTES. What a link between nodes carries in the time of one step of an exchange (data/cpu/lane.hpp):
  /// so many bytes more are sent where that saves a step. 10 Gbit/s and 13 us, or 1 Gbit/s and 130 us.
  std::size_t step_bytes = 16 << 10;

  /// How what is read by peers is written; found at the start (data/cpu/cpu_distance.hpp). May differ between ranks.
  kernels::PeerCopy to_peers;

  /// The same as `least_chunk_bytes` between nodes, where a chunk costs two steps as well: it should carry more than
  /// passes in their time. 64 KiB in one chunk took 0.5 ms between 2 hosts and 1.2 between 4, in two 0.9 and 3.7 (links
  /// of 1 Gbit/s that let bursts through, 2 ranks a host, all on 2 cores).
  [[nodiscard]] std::size_t least_exchanged_bytes() const noexcept {
    return std::max(least_chunk_bytes, 4 * step_bytes);
  }
};

/// KOLO_SLOTS, when it is 0. On one machine few, so that they stay in the cache; virtual nodes, too, are one step apart
/// as soon as the other rank has a CPU. Between hosts a link is full only while as many bytes are under way as it
/// carries from the moment that a rank sends a part until it has received and looked at what comes back: at 1 Gbit/s
/// and 5 ms - ranks that share CPUs, or sleep for a millisecond at a time (engine/driving.cpp) - 600 KiB, at 100 Gbit/s
/// and 100 us 1.2 MiB. With links of 1 Gbit/s, 2 hosts of 2 ranks, 64 MiB took 640 ms with 4 slots of 256 KiB and 574
/// ms with 16 of 128 KiB, of 562 ms that the link takes with its frames' headers.
inline std::int64_t choose_slots(bool one_machine) { return one_machine ? 4 : 16; }

/// Between hosts slots are of this size at most. With each of the 16 goes staging memory: three times its size in a
/// node of one rank that sums 32-bit floats (8 MiB in all), five times for 16-bit ones, twice more for all-to-all and
/// reduce-scatter: at the very most 16 MiB, of which pages that no call has touched cost nothing.
inline constexpr std::size_t kMostSlotBytesBetweenHosts = 128 << 10;

/// KOLO_SLOT_BYTES, when it is 0. Two forces: a slot that is small stays in its core's own (second-level) cache between
/// fill, reduce and take; one that is large gives the memory's prefetchers long rows to run along, which counts most
/// for tensors in an arena, and fewer meetings. Measured with 1 MiB of cache a core and 4 slots, 64 MiB: at 2 ranks
/// 10.0 ms with 64 KiB, 8.8 with 256 KiB and with 1 MiB, from an arena 8.8, 4.3 and 3.4; at 4 ranks on 2 cores 25.6 ms
/// with 64 KiB, 17.7 with 128 KiB, 21.6 with 256 KiB (and 8 slots of 128 KiB take 23.6).
inline std::size_t choose_slot_bytes(std::size_t cache_bytes, int local_ranks, bool one_machine) {
  const bool pair = local_ranks <= 2;
  const std::size_t fair = cache_bytes / (pair ? 4 : 8);
  const std::size_t most = one_machine ? (pair ? 256 : 128) << 10 : kMostSlotBytesBetweenHosts;
  return std::clamp<std::size_t>(fair / 4096 * 4096, 32 << 10, most);
}

/// `Tuning::copied_past_cache_bytes`. Sums of `of_sums` bytes and more are written past the cache. This is from how
/// many bytes on copies are, by each of the ranks that share a cache. A copy is as fast into the cache as past it while
/// all that the ranks copy has room there.
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

}  // namespace kolo::data::cpu
