// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that depend on nothing but their seeds: the same on every rank and in every run.
#pragma once

#include <cstdint>
#include <random>

namespace kolo::testing {

using Random = std::mt19937_64;

/// A generator that depends on nothing but these numbers.
inline Random random_of(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  std::seed_seq sequence{seed, seed >> 32, a, b, b >> 32, c, c >> 32};  // takes the low 32 bits of each
  return Random(sequence);
}

/// 0 ... below - 1.
inline std::int64_t draw(Random& random, std::int64_t below) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
}

/// True in so many of a hundred.
inline bool chance(Random& random, int percent) { return draw(random, 100) < percent; }

}  // namespace kolo::testing
