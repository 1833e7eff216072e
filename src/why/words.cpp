// SPDX-License-Identifier: Apache-2.0
#include "why/words.hpp"

#include <cmath>

#include "core/collectives.hpp"
#include "core/signature.hpp"

namespace kolo::why {

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }
std::string ranks_text(const std::vector<int>& ranks) { return core::describe_ranks(ranks); }

std::string upper(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string seconds_text(double seconds) {
  const long long ms = std::llround(std::abs(seconds) * 1000);
  std::string rest = std::to_string(ms % 1000);
  rest.insert(0, 3 - rest.size(), '0');
  return (seconds < 0 && ms > 0 ? "-" : "") + std::to_string(ms / 1000) + "." + rest + " s";
}

std::string kind_text(std::uint8_t kind) {
  if (kind >= core::kCollectiveCount) return "a collective";
  return std::string(core::to_string(static_cast<core::CollectiveKind>(kind)));
}

}  // namespace kolo::why
