// SPDX-License-Identifier: Apache-2.0
//
// Hashes that detect differences, and do not protect against an attacker. `hash_string` is FNV-1a, 64 bit: the same on
// every machine and in every release, so that hashes may be compared between ranks and runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
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

/// XXH64, by Yann Collet: for much memory, which it reads about as fast as a CPU copies it, in four chains that do not
/// wait for each other. Every bit counts, and differences of one or a few bits change about half of the hash's.
/// Machines of the same byte order get the same result.
inline std::uint64_t hash_memory(const void* data, std::size_t bytes, std::uint64_t seed = 0) noexcept {
  constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87, kPrime2 = 0xc2b2ae3d27d4eb4f, kPrime3 = 0x165667b19e3779f9,
                          kPrime4 = 0x85ebca77c2b2ae63, kPrime5 = 0x27d4eb2f165667c5;
  const auto rotate = [](std::uint64_t x, int bits) { return x << bits | x >> (64 - bits); };
  const auto mix = [rotate](std::uint64_t chain, std::uint64_t word) {
    return rotate(chain + word * kPrime2, 31) * kPrime1;
  };
  const auto* next = static_cast<const unsigned char*>(data);
  const unsigned char* const end = next + bytes;
  const auto take = [&next](auto word) -> std::uint64_t {  // of the type of `word`
    std::memcpy(&word, next, sizeof word);
    next += sizeof word;
    return word;
  };
  std::uint64_t hash = seed + kPrime5;
  if (bytes >= 4 * sizeof seed) {
    std::uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    while (end - next >= 32) {
      a = mix(a, take(std::uint64_t{}));
      b = mix(b, take(std::uint64_t{}));
      c = mix(c, take(std::uint64_t{}));
      d = mix(d, take(std::uint64_t{}));
    }
    hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    for (const std::uint64_t chain : {a, b, c, d}) hash = (hash ^ mix(0, chain)) * kPrime1 + kPrime4;
  }
  hash += bytes;
  while (end - next >= 8) hash = rotate(hash ^ mix(0, take(std::uint64_t{})), 27) * kPrime1 + kPrime4;
  if (end - next >= 4) hash = rotate(hash ^ take(std::uint32_t{}) * kPrime1, 23) * kPrime2 + kPrime3;
  while (next != end) hash = rotate(hash ^ take(std::uint8_t{}) * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
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
