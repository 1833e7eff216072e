// SPDX-License-Identifier: Apache-2.0
//
// Counts values by their size, in buckets whose bounds grow by a constant factor: a few instructions a value.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <kolo/info.hpp>

namespace kolo::base {

/// Bounds: kFirst, kFirst * 2^kShift, kFirst * 4^kShift, ..., kBounds of them; a value belongs to the first bound that
/// is not below it, or behind the last one. `Count`: std::uint64_t for one thread at a time, an atomic one for many.
template <std::uint64_t kFirst, unsigned kShift, std::size_t kBounds, class Count = std::uint64_t>
class Buckets {
 public:
  void add(std::uint64_t value) noexcept {
    ++counts_[index_of(value)];
    sum_ += value;
  }
  [[nodiscard]] static constexpr std::size_t index_of(std::uint64_t value) noexcept {
    if (value <= kFirst) return 0;
    const std::size_t index = (static_cast<std::size_t>(std::bit_width((value - 1) / kFirst)) + kShift - 1) / kShift;
    return index < kBounds ? index : kBounds;
  }
  [[nodiscard]] Histogram histogram() const {
    Histogram result;
    for (std::size_t i = 0; i < kBounds; ++i) result.bounds.push_back(kFirst << (kShift * i));
    for (const Count& count : counts_) {
      result.counts.push_back(count);
      result.count += result.counts.back();
    }
    result.sum = sum_;
    return result;
  }

 private:
  std::array<Count, kBounds + 1> counts_{};
  Count sum_{};
};

/// Of nanoseconds: 1 us, 4 us, ... 16.8 s.
template <class Count = std::uint64_t>
using DurationBuckets = Buckets<1000, 2, 13, Count>;
/// 1, 2, 4, ... 8192.
using CountBuckets = Buckets<1, 1, 14>;
/// 1 KiB, 4 KiB, ... 1 GiB.
using ByteBuckets = Buckets<1024, 2, 11>;

}  // namespace kolo::base
