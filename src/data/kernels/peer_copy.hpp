// SPDX-License-Identifier: Apache-2.0
//
// Copies into memory that peers have read before, and read next: slots, rings, what is carried beside a word.
//
// A line that another core has read must be taken from its cache before it can be written. Where the two share a cache
// that costs little, and the peer finds the line there again. Where they share none it costs several times as much: 64
// KiB took 17 us where that was measured, instead of 4. Non-temporal stores take nothing from anybody: they write to
// memory and make the peer forget its copy, in 3 us, and the peer reads it from memory as fast as from the other cache,
// 6 us. Nobody says how far two cores lie from each other, and a virtual machine changes it while it runs; so it is
// found out by copying (base/faster_way.hpp), for each order of length.
#ifndef KOLO_KERNELS_PEER_COPY_HPP
#define KOLO_KERNELS_PEER_COPY_HPP

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/faster_way.hpp"

namespace kolo::kernels {

/// For one place of memory, or several alike. One thread at a time.
class PeerCopy {
 public:
  /// Shorter ones are plain copies.
  static constexpr std::size_t kLeastBytes = 8 << 10;
  /// Copies between disjoint memory. Done, for other cores, when this returns.
  void operator()(void* to, const void* from, std::int64_t bytes);

 private:
  using Way = base::FasterWay::Way;
  static constexpr int kLeastBits = std::bit_width(kLeastBytes);
  static constexpr int kMostBits = 20;  // from here on lengths are alike

  struct Ways {
    base::FasterWay faster{Way::first};  ///< `first`: through the cache, `second`: past it
    std::uint32_t copies = 0;
  };
  std::array<Ways, kMostBits - kLeastBits + 1> ways_;
};

}  // namespace kolo::kernels

#endif  // KOLO_KERNELS_PEER_COPY_HPP
