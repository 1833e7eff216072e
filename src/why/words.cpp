// SPDX-License-Identifier: Apache-2.0
#include "why/words.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.hpp"
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

namespace {

/// The rank whose number begins at `at`, behind "rank "; -1: there is none.
int rank_at(std::string_view text, std::size_t at, int size) {
  constexpr std::string_view kWord = "rank ";
  if (at >= text.size() || text.compare(at, kWord.size(), kWord) != 0) return -1;
  const std::string_view rest = text.substr(at + kWord.size());
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::optional<int> rank = base::parse_number<int>(rest.substr(0, digits));
  return rank && *rank < size ? *rank : -1;
}

}  // namespace

std::vector<int> ranks_in(const std::string& text, int size) {
  std::vector<char> named(static_cast<std::size_t>(size));  // by rank
  const std::size_t begin = text.rfind(" of rank");
  if (begin == std::string::npos) return {};
  int number = -1;
  int from = -1;  // of a range
  for (std::size_t i = begin; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    if (c >= '0' && c <= '9') {
      number = std::min(size, std::max(number, 0) * 10 + (c - '0'));
    } else if (c == '-' && number >= 0) {
      from = std::exchange(number, -1);
    } else if (number >= 0) {
      const int first = from >= 0 ? from : number;
      const int last = std::min(number, size - 1);
      if (first <= last) std::fill(named.begin() + first, named.begin() + last + 1, 1);
      number = from = -1;
    }
  }
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (named[static_cast<std::size_t>(rank)] != 0) ranks.push_back(rank);
  }
  return ranks;
}

int rank_blamed_by(std::string_view sentence, int size) {
  if (const int rank = rank_at(sentence, 0, size); rank >= 0) return rank;
  for (const std::string_view words : {" does not answer", " has not submitted", " has shut down", " has left"}) {
    const std::size_t end = sentence.find(words);
    if (end == std::string_view::npos) continue;
    return rank_at(sentence, sentence.rfind("rank ", end), size);
  }
  return -1;
}

}  // namespace kolo::why
