// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/xxh64.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace kolo::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the hash and the files are little-endian");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;

template <class T>
T next_of(const unsigned char*& next) noexcept {
  T value;
  std::memcpy(&value, next, sizeof value);
  next += sizeof value;
  return value;
}

std::uint64_t mix_lane(std::uint64_t accumulator, std::uint64_t lane) noexcept {
  return std::rotl(accumulator + lane * kPrime2, 31) * kPrime1;
}

std::uint64_t mix_in(std::uint64_t hash, std::uint64_t accumulator) noexcept {
  return (hash ^ mix_lane(0, accumulator)) * kPrime1 + kPrime4;
}

/// Steps 1 to 3 of the specification, for 32 bytes or more. Moves `next` behind the last whole stripe.
std::uint64_t consume_stripes(const unsigned char*& next, const unsigned char* end) noexcept {
  std::array<std::uint64_t, 4> accumulators{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  while (end - next >= 32) {
    for (std::uint64_t& accumulator : accumulators) accumulator = mix_lane(accumulator, next_of<std::uint64_t>(next));
  }
  std::uint64_t hash = std::rotl(accumulators[0], 1) + std::rotl(accumulators[1], 7) + std::rotl(accumulators[2], 12) +
                       std::rotl(accumulators[3], 18);
  for (const std::uint64_t accumulator : accumulators) hash = mix_in(hash, accumulator);
  return hash;
}

}  // namespace

std::uint64_t xxh64(const void* data, std::size_t bytes) noexcept {
  const auto* next = static_cast<const unsigned char*>(data);
  const unsigned char* const end = next + bytes;
  std::uint64_t hash = bytes >= 32 ? consume_stripes(next, end) : kPrime5;
  hash += bytes;
  while (end - next >= 8) hash = std::rotl(hash ^ mix_lane(0, next_of<std::uint64_t>(next)), 27) * kPrime1 + kPrime4;
  if (end - next >= 4) hash = std::rotl(hash ^ (next_of<std::uint32_t>(next) * kPrime1), 23) * kPrime2 + kPrime3;
  while (next != end) hash = std::rotl(hash ^ (next_of<unsigned char>(next) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33U)) * kPrime2;
  hash = (hash ^ (hash >> 29U)) * kPrime3;
  return hash ^ (hash >> 32U);
}

}  // namespace kolo::checkpoint
