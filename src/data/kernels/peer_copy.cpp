// SPDX-License-Identifier: Apache-2.0
#include "data/kernels/peer_copy.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/clock.hpp"
#include "data/kernels/reduce.hpp"

namespace kolo::kernels {
namespace {

/// Looking at the clock takes as long as copying a kilobyte: of short copies one in so many is timed.
constexpr std::uint32_t kCopiesPerLook = 8;
constexpr std::int64_t kShort = 32 << 10;
/// How many times as much a byte past the cache counts. The reader pays for it where the two share a cache: it finds
/// there what went through it, and else reads memory, which takes it twice as long or more.
constexpr double kFactor = 2;
constexpr double kFactorOfShort = 3.4;

double cost_of(base::FasterWay::Way way, std::int64_t bytes, base::Duration took) noexcept {
  const std::chrono::duration<double, std::nano> nanoseconds = took;
  const double for_a_byte = nanoseconds.count() / static_cast<double>(bytes);
  if (way == base::FasterWay::Way::first) return for_a_byte;
  return for_a_byte * (bytes < kShort ? kFactorOfShort : kFactor);
}

}  // namespace

void PeerCopy::operator()(void* to, const void* from, std::int64_t bytes) {
  const int bits = std::min(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes))), kMostBits);
  if (bytes < static_cast<std::int64_t>(kLeastBytes)) return copy(to, from, bytes);
  Ways& ways = ways_[static_cast<std::size_t>(bits - kLeastBits)];
  const Way way = ways.faster.next();
  const auto copy_so = way == Way::first ? copy_ahead : copy_past_cache;
  if (bytes < kShort && !ways.faster.is_comparing() && ++ways.copies % kCopiesPerLook != 0)
    return copy_so(to, from, bytes);
  const base::Time begun = base::now();
  copy_so(to, from, bytes);
  ways.faster.note(way, cost_of(way, bytes, base::now() - begun));
}

}  // namespace kolo::kernels
