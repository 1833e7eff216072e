// SPDX-License-Identifier: Apache-2.0
//
// Tensors of more than 2^31 elements: sizes are 64-bit everywhere. Needs about 2.2 GB a rank. Within a node, and
// between nodes of one rank each.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <kolo/collectives.hpp>

namespace {

constexpr std::int64_t kElements = (std::int64_t{1} << 31) + 12'345;

/// A prime, so that what lands a whole number of chunks away from its place is seen.
constexpr std::int64_t kPeriod = 65'521;

/// One period of what `ranks` ranks from `first` on give together.
std::vector<std::uint8_t> pattern(int first, int ranks) {
  std::vector<std::uint8_t> period(static_cast<std::size_t>(kPeriod));
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    int sum = 0;
    for (int rank = first; rank < first + ranks; ++rank) sum += static_cast<int>((i * 7 + i / 251 + rank) & 63);
    period[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(sum);
  }
  return period;
}

void fill(std::vector<std::uint8_t>& x, const std::vector<std::uint8_t>& period) {
  for (std::int64_t at = 0; at < kElements; at += kPeriod) {
    std::memcpy(x.data() + at, period.data(), static_cast<std::size_t>(std::min(kPeriod, kElements - at)));
  }
}

/// Periods, whole or the last one, that are not as they should be.
std::int64_t count_wrong(const std::vector<std::uint8_t>& x, const std::vector<std::uint8_t>& period) {
  std::int64_t wrong = 0;
  for (std::int64_t at = 0; at < kElements; at += kPeriod) {
    const auto length = static_cast<std::size_t>(std::min(kPeriod, kElements - at));
    if (std::memcmp(x.data() + at, period.data(), length) != 0) ++wrong;
  }
  return wrong;
}

/// Sums and broadcasts in a world of its own; how many stretches were wrong.
std::int64_t run(std::vector<std::uint8_t>& x, const char* ranks_per_node) {
  const kolo::Session session(kolo::Options{}.with_setting("KOLO_RANKS_PER_NODE", ranks_per_node));
  fill(x, pattern(kolo::rank(), 1));
  kolo::allreduce("large", kolo::view(x));
  std::int64_t wrong = count_wrong(x, pattern(0, kolo::size()));
  if (kolo::rank() == kolo::size() - 1) fill(x, pattern(100, 1));
  kolo::broadcast("large", kolo::view(x), kolo::size() - 1);
  wrong += count_wrong(x, pattern(100, 1));
  std::printf("%s rank %d of %d a node: %lld stretches wrong in %lld elements\n", wrong == 0 ? "PASS" : "FAIL",
              kolo::rank(), kolo::local_size(), static_cast<long long>(wrong), static_cast<long long>(kElements));
  return wrong;
}

}  // namespace

int main() {
  std::vector<std::uint8_t> x(static_cast<std::size_t>(kElements));
  const std::int64_t wrong = run(x, "0") + run(x, "1");
  return wrong == 0 ? 0 : 1;
}
