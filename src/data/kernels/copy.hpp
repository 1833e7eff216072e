// SPDX-License-Identifier: Apache-2.0
//
// Copies, and which of them goes into memory that peers have read before, and read next: slots, rings, the inputs of
// short calls.
//
// A line that another CPU has read must be taken from its cache before it can be written. Where the two CPUs share a
// cache that costs little, and the peer finds the line there again. Where they share none it costs several times as
// much: 64 KiB took 17 us where that was measured, instead of 4. Non-temporal stores take nothing from anybody. They
// write to memory and make the peer forget its copy, in 3 us, and the peer reads it from memory as fast as from the
// other cache, in 6 us. Which of the two it is, is found out at the start (data/cpu/cpu_distance.hpp).
#ifndef KOLO_KERNELS_COPY_HPP
#define KOLO_KERNELS_COPY_HPP

#include <cstddef>
#include <cstdint>

namespace kolo::kernels {

/// A plain copy between disjoint memory.
void copy(void* destination, const void* source, std::int64_t bytes);

/// The same with the lines of both asked for ahead, the destination's as this core's own: faster where they are neither
/// in this core's cache nor so many that they would do better past it.
void copy_ahead(void* destination, const void* source, std::int64_t bytes);

/// The same by stores that do not bring the destination into the cache first: faster where it is not there, and will
/// not be needed there soon. Done, for other cores, when this returns.
void copy_past_cache(void* destination, const void* source, std::int64_t bytes);

/// Into memory that peers read.
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

#endif  // KOLO_KERNELS_COPY_HPP
