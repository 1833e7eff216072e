// SPDX-License-Identifier: Apache-2.0
//
// Copies into memory that peers have read before, and read next: slots, rings, the inputs of short calls.
//
// A line that another CPU has read must be taken from its cache before it can be written. Where the two CPUs share a
// cache that costs little, and the peer finds the line there again. Where they share none it costs several times as
// much: 64 KiB took 17 us where that was measured, instead of 4. Non-temporal stores take nothing from anybody. They
// write to memory and make the peer forget its copy, in 3 us, and the peer reads it from memory as fast as from the
// other cache, in 6 us. Which of the two it is, is found out at the start (data/cpu/cpu_distance.hpp).
#ifndef KOLO_KERNELS_PEER_COPY_HPP
#define KOLO_KERNELS_PEER_COPY_HPP

#include <cstddef>
#include <cstdint>

namespace kolo::kernels {

class PeerCopy {
 public:
  enum class Stores : std::uint8_t { through_cache, past_cache };
  /// Shorter ones are plain copies.
  static constexpr std::size_t kLeastBytes = 8 << 10;

  constexpr PeerCopy() = default;
  constexpr explicit PeerCopy(Stores stores) noexcept : stores_(stores) {}
  [[nodiscard]] constexpr Stores stores() const noexcept { return stores_; }
  /// Copies between disjoint memory. Done, for other CPUs, when this returns.
  void operator()(void* to, const void* from, std::int64_t bytes) const;

 private:
  Stores stores_ = Stores::through_cache;
};

}  // namespace kolo::kernels

#endif  // KOLO_KERNELS_PEER_COPY_HPP
