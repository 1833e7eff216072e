// SPDX-License-Identifier: Apache-2.0
//
// `check_agreement` compares the ranks' lists of entries, and names the first difference in a sentence.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/error.hpp>
#include <kolo/parameters.hpp>

#include "base/fields.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "core/signature.hpp"

namespace kolo {
namespace {

// A hash of the encoded list, its length in bytes, and its rank (ranks that have joined give none). Ranks exchange
// digests first, and lists only if digests differ.
using Digest = std::array<std::uint64_t, 3>;

// One rank's list.
struct List {
  std::int32_t rank;
  std::vector<std::string> entries;
};

// One version of an entry, and the ranks that gave it.
struct Version {
  const std::string* entry;  // null: the list is shorter
  std::vector<std::int32_t> ranks;

  [[nodiscard]] bool is(const std::string* other) const {
    return entry == nullptr || other == nullptr ? entry == other : *entry == *other;
  }
};

// The versions of entry `place`, in the order of their first ranks.
std::vector<Version> versions_of(const std::vector<List>& lists, std::size_t place) {
  std::vector<Version> versions;
  for (const List& list : lists) {
    const std::string* entry = place < list.entries.size() ? &list.entries[place] : nullptr;
    auto version = std::find_if(versions.begin(), versions.end(), [&](const Version& one) { return one.is(entry); });
    if (version == versions.end()) version = versions.insert(version, {entry, {}});
    version->ranks.push_back(list.rank);
  }
  return versions;
}

// Where an entry begins to differ from every other version of it.
std::size_t differs_at(const std::string& entry, const std::vector<Version>& versions) {
  std::size_t at = 0;
  for (const Version& other : versions) {
    if (other.entry == nullptr || other.is(&entry)) continue;
    const auto end = entry.begin() + static_cast<std::ptrdiff_t>(std::min(entry.size(), other.entry->size()));
    const auto first = std::mismatch(entry.begin(), end, other.entry->begin()).first;
    at = std::max(at, static_cast<std::size_t>(first - entry.begin()));
  }
  return at;
}

// The sentence about entry `place`: every version of it, with the ranks that gave it.
std::string explain(std::string_view caller, const std::vector<List>& lists, std::size_t place) {
  std::string text = base::escaped(caller) + ": ranks disagree: ";
  const std::vector<Version> versions = versions_of(lists, place);
  for (const Version& version : versions) {
    text += (&version == versions.data() ? "" : "; ") + core::describe_ranks(version.ranks) +
            (version.ranks.size() == 1 ? " has " : " have ") +
            (version.entry == nullptr ? "nothing (the list is over)"
                                      : base::quoted(*version.entry, differs_at(*version.entry, versions)));
  }
  return text;
}

// The first place at which a list differs from rank 0's. There must be one.
std::size_t first_difference(const std::vector<List>& lists) {
  std::size_t place = 0;
  while (versions_of(lists, place).size() == 1) ++place;
  return place;
}

}  // namespace

std::string quoted_name(std::string_view name) { return base::quoted(name); }

void check_agreement(const Group& group, std::string_view caller, const std::vector<std::string>& entries) {
  const std::string text = base::join_fields(entries);
  const Digest mine{base::hash_string(text), text.size(), static_cast<std::uint64_t>(rank(group))};
  const Tensor gathered = allgather({group, caller}, const_view(mine.data(), Shape{1, 3}));
  const Span<const std::uint64_t> all = gathered.as<std::uint64_t>();
  bool equal = true;
  for (std::size_t i = 0; i < all.size(); i += 3) {
    equal = equal && all[i] == mine[0] && all[i + 1] == mine[1];
  }
  if (equal) return;  // the same decision on every rank: either all lists are equal, or two differ

  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const Tensor texts = allgather({group, std::string(caller) + " (entries)"}, const_view(bytes, text.size()));
  const auto* next = static_cast<const char*>(texts.data());
  std::vector<List> lists;
  for (std::size_t i = 0; i < all.size(); i += 3) {
    lists.push_back({static_cast<std::int32_t>(all[i + 2]), base::split_fields(std::string(next, all[i + 1]))});
    next += all[i + 1];
  }
  throw Error(ErrorCode::mismatch, explain(caller, lists, first_difference(lists)));
}

}  // namespace kolo
