// SPDX-License-Identifier: Apache-2.0
//
// What a device did for a batch, and when, as a timeline shows it.
#pragma once

#include <cstdint>

namespace kolo::core {

struct DeviceSpan {
  enum class What : std::uint8_t {
    pack,    ///< tensors into a fusion buffer
    nccl,    ///< collectives of NCCL
    staged,  ///< to pinned memory, around the ranks by the CPU, and back
    unpack,
  };
  /// On which stream; what one stream does never overlaps.
  enum class Row : std::uint8_t { pack, nccl, second_nccl, unpack, staged };

  What what = What::pack;
  Row row = Row::pack;
  bool in_place = false;       ///< all of it was reduced where the tensors lie
  std::uint64_t begin_ns = 0;  ///< by the host's clock (base::Clock)
  std::uint64_t end_ns = 0;
  std::uint64_t bytes = 0;  ///< of this rank

  /// All but times and bytes, as a number of six bits.
  [[nodiscard]] std::uint8_t code() const noexcept {
    return static_cast<std::uint8_t>(static_cast<unsigned>(what) | static_cast<unsigned>(row) << 2U |
                                     (in_place ? kInPlace : 0U));
  }
  static DeviceSpan of_code(std::uint8_t code) noexcept {
    DeviceSpan span;
    span.what = static_cast<What>(code & 3U);
    span.row = static_cast<Row>(code >> 2U & 7U);
    span.in_place = (code & kInPlace) != 0;
    return span;
  }

 private:
  static constexpr unsigned kInPlace = 32;
};

}  // namespace kolo::core
