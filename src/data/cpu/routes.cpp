// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/routes.hpp"

#include <algorithm>
#include <iterator>

#include <kolo/error.hpp>

#include "base/quote.hpp"
#include "base/text.hpp"

namespace kolo::data::cpu {
namespace {

using Ranks = Limits<int>;

constexpr std::uint64_t kKi = 1024;
/// Each rank has memory for two inputs of the longest small call, in each set.
constexpr std::uint64_t kMostSmall = kKi * kKi * 16;
constexpr std::string_view kAllSubjects = "*";

/// The row with the subject's routes, or with this one of them; null: there is none.
const RouteRow* find_default(std::string_view subject, std::optional<Route> route = {}) noexcept {
  const auto* const row = std::find_if(std::begin(kDefaultRoutes), std::end(kDefaultRoutes), [&](const RouteRow& one) {
    return (subject == kAllSubjects || one.subject == subject) && (!route || one.route == *route);
  });
  return row == std::end(kDefaultRoutes) ? nullptr : row;
}

/// What the rows have, each once: "small, flat".
template <class Word>
std::string list_defaults(Word&& word_of) {
  std::string all;
  std::string_view last;
  for (const RouteRow& row : kDefaultRoutes) {
    const std::string_view word = word_of(row);
    if (!word.empty() && word != last) all += (all.empty() ? "" : ", ") + std::string(word);
    if (!word.empty()) last = word;
  }
  return all;
}

std::string text_of(const ByteRange& sizes) {
  if (sizes.are_none()) return "none";
  const std::string least = base::bytes_text(static_cast<std::int64_t>(sizes.least)) + "-";
  return sizes.most == ByteRange::kAll ? least : least + base::bytes_text(static_cast<std::int64_t>(sizes.most));
}

/// Takes what is before the separator, and the separator, out of the text.
std::string_view cut_front(std::string_view& text, char separator) {
  const std::string_view first = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(first.size() + 1, text.size()));
  return first;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_setting, why); }

/// "2-8" or "8-", each end by `parse`.
template <class Number, class Parse>
Limits<Number> parse_limits(std::string_view text, Parse&& parse, const char* wanted) {
  std::string_view rest = text;
  const auto least = parse(cut_front(rest, '-'));
  const auto most = rest.empty() ? least : parse(rest);
  if (!least || !most || *most < *least || text.find('-') == std::string_view::npos)
    refuse(base::quoted(text) + " is no range of " + wanted);
  return {static_cast<Number>(*least), rest.empty() ? Limits<Number>::kAll : static_cast<Number>(*most)};
}

ByteRange parse_sizes(std::string_view text) {
  if (text == "none") return kNoSizes;
  return parse_limits<std::uint64_t>(text, base::parse_bytes, "sizes: expected such as 0-64K, 8K-, or none");
}

/// A route that the subject offers.
Route parse_route(std::string_view text, std::string_view subject) {
  for (const RouteRow& row : kDefaultRoutes)
    if (text == to_string(row.route) && (subject == kAllSubjects || subject == row.subject)) return row.route;
  if (text == to_string(Route::slots))
    refuse("slots takes what no other route takes, so it has no sizes: give the others fewer");
  refuse(base::quoted(text) + " is no route of " + std::string(subject) + ": expected one of " +
         list_defaults([&](const RouteRow& row) {
           return subject == kAllSubjects || subject == row.subject ? to_string(row.route) : std::string_view();
         }));
}

}  // namespace

/// Through the ring both ranks copy, and the data is in the shared cache in between, until it is too large for that. To
/// and fro 16 KiB took 1.9 us instead of 7, 64 KiB 6 instead of 14, 1 MiB 70 instead of 100, 4 MiB 0.28 ms instead of
/// 0.49, and 32 MiB as long, with a cache of 32 MiB.
RouteTable::RouteTable(std::string_view changes, std::size_t shared_cache)
    : rows_(std::begin(kDefaultRoutes), std::end(kDefaultRoutes)) {
  if (shared_cache > 0) {
    constexpr std::uint64_t kOwn = 32 * kKi * kKi;  // a larger cache has other users, too
    const std::uint64_t least = std::max(std::min<std::uint64_t>(shared_cache, kOwn) / 2, 8 * kKi);
    rows_.push_back({kMessage, Route::peers, {}, {least, ByteRange::kAll}});
  }
  try {
    for (std::string_view rest = changes; !rest.empty();) change(cut_front(rest, ';'));
  } catch (const Error& error) {
    refuse("KOLO_ROUTES is " + base::quoted(changes) + ": " + error.status().message() +
           " (as a whole COLLECTIVE:SIZES=ROUTE,... for each collective, with ';' between them, and COLLECTIVE@RANKS "
           "for some numbers of ranks)");
  }
}

/// "reduce@2-4:0-1M=flat,none=small"
void RouteTable::change(std::string_view entry) {
  std::string_view routes = entry;
  std::string_view ranks_text = cut_front(routes, ':');
  const bool has_ranks = ranks_text.find('@') != std::string_view::npos;
  const std::string_view name = cut_front(ranks_text, '@');
  const RouteRow* const row = find_default(name);
  if (row == nullptr) {
    refuse(base::quoted(name) + " is no collective with routes: expected one of " +
           list_defaults([](const RouteRow& one) { return one.subject; }) + ", or * for all");
  }
  const std::string_view subject = name == kAllSubjects ? kAllSubjects : row->subject;
  const auto ranks =
      has_ranks ? parse_limits<int>(ranks_text, base::parse_number<int>, "ranks: expected such as 2-8 or 8-") : Ranks();
  if (routes.empty()) refuse(base::quoted(entry) + " names no route");
  while (!routes.empty()) {
    std::string_view route_text = cut_front(routes, ',');
    const ByteRange sizes = parse_sizes(cut_front(route_text, '='));
    const Route route = parse_route(route_text, subject);
    if (route == Route::small && !sizes.are_none() && sizes.most > kMostSmall)
      refuse("small calls of " + text_of(sizes) + ": their sizes end at 16M at most");
    if (route == Route::peers && !sizes.are_none() && sizes.most != ByteRange::kAll)
      refuse("messages of " + text_of(sizes) + ": their sizes have no end, as 8K- has none");
    rows_.push_back({subject, route, ranks, sizes});
  }
}

ByteRange RouteTable::sizes(std::string_view subject, Route route, int ranks) const noexcept {
  const auto row = std::find_if(rows_.rbegin(), rows_.rend(), [&](const RouteRow& one) {
    return (one.subject == subject || one.subject == kAllSubjects) && one.route == route && one.ranks.hold(ranks);
  });
  return row == rows_.rend() || find_default(subject, route) == nullptr ? kNoSizes : row->sizes;
}

std::optional<std::size_t> RouteTable::longest_small(int ranks) const {
  std::optional<std::size_t> longest;
  for (int some = 1; some <= ranks; ++some) {
    for (const RouteRow& row : kDefaultRoutes) {
      const ByteRange small = row.route == Route::small ? sizes(row.subject, Route::small, some) : kNoSizes;
      if (!small.are_none()) longest = std::max<std::size_t>(longest.value_or(0), small.most);
    }
  }
  return longest;
}

std::optional<std::uint64_t> RouteTable::messages_read_above(int ranks) const noexcept {
  const ByteRange read = sizes(kMessage, Route::peers, ranks);
  if (read.are_none()) return std::nullopt;
  return std::max<std::uint64_t>(read.least, 1) - 1;
}

std::vector<std::string> RouteTable::describe(int ranks, bool reads_peers) const {
  std::vector<std::string> entries;
  const RouteRow* last = nullptr;
  for (const RouteRow& row : kDefaultRoutes) {
    const bool is_new = last == nullptr || last->subject != row.subject;
    if (!is_new && last->route == row.route) continue;
    if (is_new) entries.push_back(std::string(row.subject) + ":");
    const bool is_there = row.route != Route::peers || reads_peers;
    entries.back() += (is_new ? "" : ",") + text_of(is_there ? sizes(row.subject, row.route, ranks) : kNoSizes) + "=" +
                      std::string(to_string(row.route));
    last = &row;
  }
  return entries;
}

Routes::Routes(const RouteTable& table, int ranks) {
  for (const core::CollectiveTraits& traits : core::kCollectives) {
    auto& sizes = sizes_[static_cast<std::size_t>(traits.kind)];
    for (std::size_t route = 0; route < sizes.size(); ++route)
      sizes[route] = table.sizes(traits.name, static_cast<Route>(route), ranks);
  }
}

}  // namespace kolo::data::cpu
