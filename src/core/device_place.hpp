// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor lies in arenas of the device, as one number that all ranks understand (TensorSignature::place): its
// exact place in one, if it is to be reduced there; else only in which arenas NCCL reads and writes, which all ranks
// have to do alike (NCCL may reach into memory that has been registered with it on all ranks, and hangs where it was on
// some).
#pragma once

#include <cstdint>

namespace kolo::core {

/// Tensors of an arena begin at multiples of this.
inline constexpr std::uint64_t kArenaAlignment = 64;

struct DevicePlace {
  static constexpr int kOffsetBits = 47;
  static constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
  static constexpr std::uint64_t kEndsBit = std::uint64_t{1} << kOffsetBits;
  static constexpr std::uint64_t kRegionsBit = std::uint64_t{1} << (kOffsetBits - 1);  ///< no arena is so large

  std::uint16_t region = 0;  ///< the arena's number, never 0
  std::uint64_t offset = 0;  ///< in bytes
  /// Whether an allocation of the arena ends with the tensor. Then the bytes up to the next multiple of the alignment
  /// are unused and may be overwritten.
  bool ends = false;

  DevicePlace() noexcept = default;
  explicit DevicePlace(std::uint64_t place) noexcept
      : region(static_cast<std::uint16_t>(place >> (kOffsetBits + 1))), offset(place & kOffsetMask),
        ends((place & kEndsBit) != 0) {}
  /// The number of a tensor that is read somewhere in one arena and written in another; 0: in none.
  [[nodiscard]] static std::uint64_t of_regions(std::uint16_t input, std::uint16_t output) noexcept {
    if (input == 0 && output == 0) return 0;
    return std::uint64_t{input} << (kOffsetBits + 1) | kRegionsBit | output;
  }
  /// Whether it is one place, and not only two arenas.
  [[nodiscard]] bool is_exact() const noexcept { return region != 0 && (offset & kRegionsBit) == 0; }
  /// Of one that is not exact.
  [[nodiscard]] std::uint16_t output_region() const noexcept { return static_cast<std::uint16_t>(offset); }
  [[nodiscard]] std::uint64_t number() const noexcept {
    return std::uint64_t{region} << (kOffsetBits + 1) | (ends ? kEndsBit : 0) | offset;
  }
};

}  // namespace kolo::core
