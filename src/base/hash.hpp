// SPDX-License-Identifier: Apache-2.0
//
// FNV-1a, 64 bit: the same on every machine and in every release, so that hashes may be compared between ranks and
// runs. It detects differences, but does not protect against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kolo::base {

inline constexpr std::uint64_t kHashSeed = 0xcbf29ce484222325;

namespace detail {
inline constexpr std::uint64_t kHashPrime = 0x100000001b3;
inline constexpr std::uint64_t hash_byte(std::uint64_t hash, std::uint8_t byte) noexcept {
  return (hash ^ byte) * kHashPrime;
}
}  // namespace detail

/// The hash of the bytes; give an earlier result as the seed to go on with it: hash(ab) = hash(b, hash(a)).
inline constexpr std::uint64_t hash_string(std::string_view text, std::uint64_t seed = kHashSeed) noexcept {
  for (const char c : text) seed = detail::hash_byte(seed, static_cast<std::uint8_t>(c));
  return seed;
}

/// Continues with a number that is itself a hash: one step instead of eight.
inline constexpr std::uint64_t hash_hash(std::uint64_t hash, std::uint64_t seed) noexcept {
  seed = (seed ^ hash) * detail::kHashPrime;
  return seed ^ (seed >> 32);
}

/// The hash of a number as its eight bytes, lowest first, whatever the machine's order.
inline constexpr std::uint64_t hash_number(std::uint64_t number, std::uint64_t seed = kHashSeed) noexcept {
  for (int shift = 0; shift < 64; shift += 8)
    seed = detail::hash_byte(seed, static_cast<std::uint8_t>(number >> shift));
  return seed;
}

/// A faster hash for texts: sixteen bytes a step, each folded by one wide multiplication (as in Wang Yi's wyhash), and
/// the length. Machines of the same byte order get the same result.
inline std::uint64_t hash_text_quickly(std::string_view text, std::uint64_t seed = kHashSeed) noexcept {
  __extension__ using Wide = unsigned __int128;
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a ^ 0x9e3779b97f4a7c15) * (b ^ 0xd1b54a32d192ed03);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  const auto word_at = [text](std::size_t at) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    return word;
  };
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  seed = fold(text.size(), seed);
  std::size_t at = 0;
  for (; text.size() - at > 2 * kWord; at += 2 * kWord) seed = fold(word_at(at), word_at(at + kWord) ^ seed);
  const std::size_t left = text.size() - at;
  if (left >= kWord) return fold(word_at(at), word_at(text.size() - kWord) ^ seed);  // some bytes may be hashed twice
  std::uint64_t rest = 0;
  for (; at < text.size(); ++at) rest = rest << 8 | static_cast<std::uint8_t>(text[at]);
  return fold(rest, seed);
}

}  // namespace kolo::base
