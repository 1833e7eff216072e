// SPDX-License-Identifier: Apache-2.0
#include "samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kolo_bench {
namespace {

double percentile(const std::vector<double>& sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return std::lerp(sorted[below], sorted[above], part);  // of equal samples exactly that
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {percentile(samples, 0.5), percentile(samples, 0.1), percentile(samples, 0.9)};
}

bool is_stable(const std::vector<double>& samples) {
  constexpr std::size_t kFewest = 20;
  constexpr double kTolerance = 0.02;
  if (samples.size() < kFewest) return false;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  const double first = summarize({samples.begin(), middle}).median;
  const double second = summarize({middle, samples.end()}).median;
  return std::abs(first - second) <= kTolerance * std::max(first, second);
}

}  // namespace kolo_bench
