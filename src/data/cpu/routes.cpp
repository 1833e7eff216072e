// SPDX-License-Identifier: Apache-2.0
#include "data/cpu/routes.hpp"

#include <algorithm>
#include <iterator>

#include <kolo/error.hpp>

#include "base/quote.hpp"
#include "base/text.hpp"

namespace kolo::data::cpu {
namespace {

using RouteRow = RouteTable::Row;
using Ranks = Limits<int>;

constexpr std::uint64_t kKi = 1024;
/// Each rank has memory for two inputs of the longest small call, in each set.
constexpr std::uint64_t kMostSmall = kKi * kKi * 16;
constexpr std::string_view kMessage = "message";

/// A collective offers the routes that have rows here.
///
/// small: up to 64 KiB the log costs more than the copies that peers save each other. In an all-reduce each rank reads
/// all inputs: 512 KiB at most.
///
/// flat: every rank reads all of every other's input, which crosses cores n - 1 times instead of twice, but ranks meet
/// once instead of twice. A meeting costs some hundred nanoseconds, the time in which 8 KiB cross. The root of a reduce
/// reads a line of each rank and writes one; through slots it reads and writes about two.
///
/// peers: a read costs a call of the system, which copies page by page. The ring costs a second copy, and lines that
/// come from another CPU.
constexpr RouteRow kDefaults[] = {
    {"allreduce", Route::small, {0, 8}, {0, 64 * kKi}},
    {"allreduce", Route::small, {9, 16}, {0, 32 * kKi}},
    {"allreduce", Route::small, {17, 32}, {0, 16 * kKi}},
    {"allreduce", Route::small, {33, 64}, {0, 8 * kKi}},
    {"allreduce", Route::small, {65, Ranks::kAll}, {0, kKi}},
    {"allreduce", Route::flat, {}, {0, 8 * kKi}},
    {"allgather", Route::small, {}, {0, 64 * kKi}},
    {"broadcast", Route::small, {}, {0, 64 * kKi}},
    {"barrier", Route::small, {}, {0, 0}},
    {"alltoall", Route::small, {}, {0, 64 * kKi}},
    {"reduce_scatter", Route::small, {}, {0, 64 * kKi}},
    {"reduce", Route::small, {}, {0, 64 * kKi}},
    {"reduce", Route::flat, {0, 3}, {}},
    {"reduce", Route::flat, {4, Ranks::kAll}, {0, 8 * kKi}},
    {"gather", Route::small, {}, {0, 64 * kKi}},
    {"scatter", Route::small, {}, {0, 64 * kKi}},
    {kMessage, Route::peers, {}, {8 * kKi, ByteRange::kAll}},
};

/// Calls visit(subject) for each, or, with a route, for each that offers the route.
template <class Visit>
void each_subject(std::optional<Route> route, Visit&& visit) {
  std::string_view last;
  for (const RouteRow& row : kDefaults) {
    if ((route && row.route != *route) || row.subject == last) continue;
    last = row.subject;
    visit(row.subject);
  }
}

void list(std::string& all, std::string_view one) { all += (all.empty() ? "" : ", ") + std::string(one); }

std::string sizes_text(const ByteRange& sizes) {
  if (sizes.are_none()) return "none";
  const std::string least = base::bytes_text(static_cast<std::int64_t>(sizes.least)) + "-";
  return sizes.most == ByteRange::kAll ? least : least + base::bytes_text(static_cast<std::int64_t>(sizes.most));
}

/// Takes what is before the separator, and the separator, out of the text.
std::string_view take(std::string_view& text, char separator) {
  const std::string_view first = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(first.size() + 1, text.size()));
  return first;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_setting, why); }

/// "2-8" or "8-", each end by `parse`.
template <class Number, class Parse>
std::optional<Limits<Number>> parse_limits(std::string_view text, Parse&& parse) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  Limits<Number> limits;
  const auto least = parse(text.substr(0, dash));
  if (!least || *least < 0) return std::nullopt;
  limits.least = static_cast<Number>(*least);
  if (dash + 1 == text.size()) return limits;
  const auto most = parse(text.substr(dash + 1));
  if (!most || *most < *least) return std::nullopt;
  limits.most = static_cast<Number>(*most);
  return limits;
}

Ranks parse_ranks(std::string_view text) {
  const auto ranks = parse_limits<int>(text, base::parse_number<int>);
  if (!ranks) refuse(base::quoted(text) + " are no numbers of ranks: expected such as 2-8 or 8-");
  return *ranks;
}

ByteRange parse_sizes(std::string_view text) {
  if (text == "none") return kNoSizes;
  const auto sizes = parse_limits<std::uint64_t>(text, base::parse_bytes);
  if (!sizes) refuse(base::quoted(text) + " are no sizes: expected such as 0-64K, 8K-, or none");
  return *sizes;
}

Route parse_route(std::string_view text) {
  std::string all;
  for (const Route route : {Route::small, Route::flat, Route::peers}) {
    if (text == to_string(route)) return route;
    list(all, to_string(route));
  }
  if (text == to_string(Route::slots))
    refuse("slots takes what no other route takes, so it has no sizes: give the others fewer");
  refuse(base::quoted(text) + " is no route: expected one of " + all);
}

void check_subject(std::string_view subject) {
  std::string all;
  bool is_one = subject == "*";
  each_subject({}, [&](std::string_view one) {
    is_one = is_one || one == subject;
    list(all, one);
  });
  if (!is_one)
    refuse(base::quoted(subject) + " is no collective with routes: expected one of " + all + ", or * for all");
}

void check_sizes(std::string_view subject, Route route, const ByteRange& sizes) {
  if (route == Route::small && !sizes.are_none() && sizes.most > kMostSmall)
    refuse("small calls of " + sizes_text(sizes) + ": their sizes end at 16M at most");
  if (subject == kMessage && !sizes.are_none() && sizes.most != ByteRange::kAll)
    refuse("messages of " + sizes_text(sizes) + ": their sizes have no end, as 8K- has none");
}

}  // namespace

std::string_view to_string(Route route) noexcept {
  constexpr std::string_view kNames[] = {"small", "flat", "peers", "slots"};
  return kNames[static_cast<std::size_t>(route)];
}

/// Through the ring both ranks copy, and the data is in the shared cache in between, until it is too large for that. To
/// and fro 64 KiB took 5.5 us instead of 12.4, 1 MiB 65 instead of 95, 8 MiB 1.1 ms instead of 1.7, and 32 MiB as long,
/// with a cache of 32 MiB.
RouteTable::RouteTable(std::string_view changes, std::size_t shared_cache)
    : rows_(std::begin(kDefaults), std::end(kDefaults)) {
  if (shared_cache > 0) {
    constexpr std::uint64_t kOwn = 32 * kKi * kKi;  // a larger cache has other users, too
    const std::uint64_t least = std::max(std::min<std::uint64_t>(shared_cache, kOwn) / 2, 8 * kKi);
    rows_.push_back({kMessage, Route::peers, {}, {least, ByteRange::kAll}});
  }
  try {
    for (std::string_view rest = changes; !rest.empty();) change(take(rest, ';'));
  } catch (const Error& error) {
    refuse("KOLO_ROUTES is " + base::quoted(changes) + ": " + error.status().message() +
           " (as a whole COLLECTIVE:SIZES=ROUTE,... for each collective, with ';' between them, and COLLECTIVE@RANKS "
           "for some numbers of ranks)");
  }
}

/// "reduce@2-4:0-1M=flat,none=small"
void RouteTable::change(std::string_view entry) {
  std::string_view routes = entry;
  std::string_view ranks_text = take(routes, ':');
  const bool has_ranks = ranks_text.find('@') != std::string_view::npos;
  const std::string_view subject = take(ranks_text, '@');
  check_subject(subject);
  const Ranks ranks = has_ranks ? parse_ranks(ranks_text) : Ranks();
  if (routes.empty()) refuse(base::quoted(entry) + " names no route");
  while (!routes.empty()) {
    std::string_view route_text = take(routes, ',');
    const ByteRange sizes = parse_sizes(take(route_text, '='));
    const Route route = parse_route(route_text);
    std::string offering;
    bool is_offered = false;
    each_subject(route, [&](std::string_view one) {
      list(offering, one);
      if (subject != "*" && subject != one) return;
      check_sizes(one, route, sizes);
      rows_.push_back({one, route, ranks, sizes});
      is_offered = true;
    });
    if (!is_offered)
      refuse(std::string(subject) + " has no route " + std::string(to_string(route)) + ": these have it: " + offering);
  }
}

ByteRange RouteTable::sizes(std::string_view subject, Route route, int ranks) const noexcept {
  const auto row = std::find_if(rows_.rbegin(), rows_.rend(), [&](const Row& one) {
    return one.subject == subject && one.route == route && one.ranks.hold(ranks);
  });
  return row == rows_.rend() ? kNoSizes : row->sizes;
}

/// Calls visit(sizes) with all that a route has, among whatever number of ranks: what holds changes only where a row
/// begins, and behind its end.
template <class Visit>
void RouteTable::each_in_force(Route route, Visit&& visit) const {
  for (const Row& row : rows_) {
    if (row.route != route) continue;
    visit(sizes(row.subject, route, row.ranks.least));
    if (row.ranks.most != Ranks::kAll) visit(sizes(row.subject, route, row.ranks.most + 1));
  }
}

std::optional<std::size_t> RouteTable::longest_small() const {
  std::optional<std::size_t> longest;
  each_in_force(Route::small, [&](const ByteRange& sizes) {
    if (!sizes.are_none()) longest = std::max<std::size_t>(longest.value_or(0), sizes.most);
  });
  return longest;
}

bool RouteTable::wants_peers() const {
  bool wants = false;
  each_in_force(Route::peers, [&](const ByteRange& sizes) { wants = wants || !sizes.are_none(); });
  return wants;
}

Routes::Routes(const RouteTable& table, int ranks) {
  for (const core::CollectiveTraits& traits : core::kCollectives) {
    auto& sizes = sizes_[static_cast<std::size_t>(traits.kind)];
    for (std::size_t route = 0; route < sizes.size(); ++route)
      sizes[route] = table.sizes(traits.name, static_cast<Route>(route), ranks);
  }
}

std::uint64_t messages_read_above(const RouteTable& table, int ranks) noexcept {
  const ByteRange sizes = table.sizes(kMessage, Route::peers, ranks);
  return sizes.are_none() ? ByteRange::kAll : std::max<std::uint64_t>(sizes.least, 1) - 1;
}

std::vector<std::string> describe_routes(const RouteTable& table, int ranks, bool reads_peers) {
  std::vector<std::string> entries;
  each_subject({}, [&](std::string_view subject) {
    std::string routes;
    for (const Route route : {Route::small, Route::flat, Route::peers}) {
      each_subject(route, [&](std::string_view one) {
        if (one != subject) return;
        const bool is_there = route != Route::peers || reads_peers;
        const ByteRange sizes = is_there ? table.sizes(subject, route, ranks) : kNoSizes;
        routes += (routes.empty() ? "" : ",") + sizes_text(sizes) + "=" + std::string(to_string(route));
      });
    }
    entries.push_back(std::string(subject) + ":" + routes);
  });
  return entries;
}

}  // namespace kolo::data::cpu
