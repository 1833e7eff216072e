// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4), in plain C++: what base/proof.hpp makes its HMAC of. A job that meets hashes a few kilobytes,
// so nothing here is for speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kolo::base {

/// Hashes what `add` is given, in any pieces. One use: after `digest` nothing may be added.
class Sha256 {
 public:
  static constexpr std::size_t kBlockBytes = 64;
  using Digest = std::array<std::uint8_t, 32>;

  void add(std::string_view bytes) noexcept;
  [[nodiscard]] Digest digest() noexcept;

 private:
  using Block = std::array<std::uint8_t, kBlockBytes>;
  using State = std::array<std::uint32_t, 8>;

  void compress() noexcept;

  // The first 32 bits of the fractional parts of the square roots of the first eight primes (FIPS 180-4, 5.3.3).
  State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  Block block_{};
  std::size_t filled_ = 0;    // bytes of block_
  std::uint64_t length_ = 0;  // bytes added
};

}  // namespace kolo::base
