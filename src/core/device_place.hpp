// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor lies in an arena of the device, as one number that all ranks understand (TensorSignature::place).
#pragma once

#include <cstdint>

namespace kolo::core {

/// Tensors of an arena begin at multiples of this.
inline constexpr std::uint64_t kArenaAlignment = 64;

struct DevicePlace {
  static constexpr int kOffsetBits = 47;
  static constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
  static constexpr std::uint64_t kEndsBit = std::uint64_t{1} << kOffsetBits;

  std::uint16_t region = 0;  ///< the arena's number, never 0
  std::uint64_t offset = 0;  ///< in bytes
  /// Whether an allocation of the arena ends with the tensor. Then the bytes up to the next multiple of the alignment
  /// are unused and may be overwritten.
  bool ends = false;

  DevicePlace() noexcept = default;
  explicit DevicePlace(std::uint64_t place) noexcept
      : region(static_cast<std::uint16_t>(place >> (kOffsetBits + 1))), offset(place & kOffsetMask),
        ends((place & kEndsBit) != 0) {}
  [[nodiscard]] std::uint64_t number() const noexcept {
    return std::uint64_t{region} << (kOffsetBits + 1) | (ends ? kEndsBit : 0) | offset;
  }
};

}  // namespace kolo::core
