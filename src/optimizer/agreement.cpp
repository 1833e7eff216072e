// SPDX-License-Identifier: Apache-2.0
#include "optimizer/agreement.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

namespace kolo {
namespace {

// What ranks compare first: FNV-1a of the entries, and their length as text.
using Digest = std::array<std::uint64_t, 2>;

std::string join(const std::vector<std::string>& entries) {
  std::string text;
  for (const std::string& entry : entries) {
    text += entry + '\n';
  }
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> entries;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    entries.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return entries;
}

Digest digest_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  return {hash, text.size()};
}

std::string list_ranks(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

// The sentence about entry `place`: every version of it, with the ranks that gave it, in the order of first ranks.
std::string explain(std::string_view caller, const std::vector<std::vector<std::string>>& lists, std::size_t place) {
  std::map<std::string, std::vector<std::size_t>> said;
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const std::string entry =
        place < lists[rank].size() ? "\"" + lists[rank][place] + "\"" : "nothing (the list is over)";
    if (said[entry].empty()) {
      order.push_back(entry);
    }
    said[entry].push_back(rank);
  }
  std::string text = std::string(caller) + ": ranks disagree: ";
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::vector<std::size_t>& ranks = said[order[i]];
    text += (i == 0 ? "" : "; ") + list_ranks(ranks) + (ranks.size() == 1 ? " has " : " have ") + order[i];
  }
  return text;
}

// The first place where some list differs from rank 0's; there is one.
std::size_t first_difference(const std::vector<std::vector<std::string>>& lists) {
  std::size_t first = lists[0].size();
  for (const std::vector<std::string>& list : lists) {
    const auto end = lists[0].begin() + static_cast<std::ptrdiff_t>(std::min(list.size(), lists[0].size()));
    const auto place = std::mismatch(lists[0].begin(), end, list.begin()).first - lists[0].begin();
    const bool differs = static_cast<std::size_t>(place) < std::max(list.size(), lists[0].size());
    if (differs) {
      first = std::min(first, static_cast<std::size_t>(place));
    }
  }
  return first;
}

}  // namespace

std::string optimizer::describe(std::string_view name, const TensorView& view) {
  std::string text = std::string(name) + ' ' + std::string(to_string(view.dtype())) + ' ' + to_string(view.shape());
  if (view.device() != cpu()) {
    text += " cuda";  // which of a host's devices it is differs by rank
  }
  return text;
}

void optimizer::check_names(std::string_view caller, const std::vector<std::string_view>& names) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(caller) + ": entry " + std::to_string(i) + " has no name; every one needs its own");
    }
    if (!seen.insert(names[i]).second) {
      throw Error(ErrorCode::invalid_argument,
                  std::string(caller) + ": two entries are named \"" + std::string(names[i]) + "\"; names must differ");
    }
  }
}

void optimizer::check_root(std::string_view caller, const Group& group, int root) {
  if (root < 0 || root >= size(group)) {
    throw Error(ErrorCode::invalid_argument, std::string(caller) + ": root " + std::to_string(root) +
                                                 " is no rank; ranks are 0 to " + std::to_string(size(group) - 1));
  }
}

void check_agreement(const Group& group, std::string_view caller, const std::vector<std::string>& entries) {
  const std::string text = join(entries);
  const Digest mine = digest_of(text);
  const Tensor gathered = allgather(group, caller, const_view(mine.data(), Shape{1, 2}));
  const Span<const std::uint64_t> all = gathered.as<std::uint64_t>();
  bool equal = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    equal = equal && all[i] == mine[i % 2];
  }
  if (equal) {
    return;
  }  // the same decision on every rank: all are equal to mine, or some two differ

  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const Tensor texts = allgather(group, std::string(caller) + " (entries)", const_view(bytes, text.size()));
  std::string_view rest(static_cast<const char*>(texts.data()), static_cast<std::size_t>(texts.elements()));
  std::vector<std::vector<std::string>> lists;
  for (std::size_t rank = 0; rank < all.size() / 2; ++rank) {
    const std::size_t length = all[2 * rank + 1];
    lists.push_back(split(rest.substr(0, length)));
    rest.remove_prefix(length);
  }
  throw Error(ErrorCode::mismatch, explain(caller, lists, first_difference(lists)));
}

}  // namespace kolo
