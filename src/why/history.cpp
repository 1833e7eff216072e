// SPDX-License-Identifier: Apache-2.0
#include "why/history.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "core/collectives.hpp"
#include "why/words.hpp"

namespace kolo::why {
namespace {

using recorder::Kind;

constexpr double kNanosecond = 1e-9;
/// Times and shifts that stand in files are cut to this (36 years), so that sums of them are numbers.
constexpr std::int64_t kFarAway = std::int64_t{1} << 60U;
constexpr std::int64_t kMinute = 60'000'000'000;
/// Of a name, where the list of a group's ranks is one.
constexpr std::size_t kLongestName = 1000;

/// The difference of two clocks, which stand in files, as no more than kFarAway.
std::int64_t difference(std::int64_t a, std::int64_t b) {
  // Exact enough: more than a day apart, no microsecond matters.
  const double far = static_cast<double>(a) - static_cast<double>(b);
  if (std::abs(far) >= static_cast<double>(kFarAway)) return far < 0 ? -kFarAway : kFarAway;
  return a - b;
}

std::string cut(std::string text) {
  if (text.size() > kLongestName) text = text.substr(0, kLongestName) + "...";
  return text;
}

}  // namespace

bool makes_set(const Open& open) noexcept {
  return static_cast<core::CollectiveKind>(open.kind) == core::CollectiveKind::add_process_set;
}

History::History(const std::vector<Observed>& observed, std::int64_t now_ns)
    : size_(observed.front().recording.size), now_(std::clamp(now_ns, -kFarAway, kFarAway)) {
  const recorder::Recording& reference = observed.front().recording;
  facts_.resize(static_cast<std::size_t>(size_));
  for (const Observed& one : observed) {
    const auto rank = static_cast<std::size_t>(one.recording.rank);
    if (rank >= facts_.size() || one.recording.job != reference.job) continue;
    facts_[rank] = facts_of(one.recording, one.life);
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (has_file(rank)) recorded_.push_back(rank);
  }
  align(reference);
  const bool some_live =
      std::any_of(recorded_.begin(), recorded_.end(), [this](int rank) { return of(rank).life != Life::gone; });
  if (!some_live) now_ = last_;
}

// -- time

void History::align(const recorder::Recording& reference) {
  bool is_first = true;
  for (const int rank : recorded_) {
    const Facts& facts = of(rank);
    const recorder::Recording& its = *facts.recording;
    if (its.boot != reference.boot) shifts_[rank] = shift_of(its, reference);
    const std::int64_t first = time_of(rank, facts.first != 0 ? facts.first : facts.last);
    const std::int64_t last = time_of(rank, facts.last);
    first_ = is_first ? first : std::min(first_, first);
    last_ = is_first ? last : std::max(last_, last);
    is_first = false;
  }
}

// Of a clock of another boot: by the clocks of the day, unless one of these is wrong. All ranks begin their files in
// one step of the start, which then is one moment.
std::int64_t History::shift_of(const recorder::Recording& its, const recorder::Recording& reference) {
  const std::int64_t by_start = difference(reference.monotonic_ns, its.monotonic_ns);
  const std::int64_t apart = difference(its.wall_ns, reference.wall_ns);
  if (std::abs(apart) > kMinute) {
    wrong_clocks_.insert(its.host);
    return by_start;
  }
  other_clocks_.insert(its.host);
  return difference(by_start + apart, 0);
}

std::int64_t History::time_of(int rank, std::uint64_t time) const {
  const auto shift = shifts_.find(rank);
  const auto there = static_cast<std::int64_t>(std::min(time, static_cast<std::uint64_t>(kFarAway)));
  return shift == shifts_.end() ? there : there + shift->second;
}

std::int64_t History::end_of(int rank) const { return of(rank).fault ? time_of(rank, of(rank).fault->time) : now_; }

double History::seconds_since_begin(std::int64_t time) const {
  return static_cast<double>(time - first_) * kNanosecond;
}

std::string History::at(int rank, std::uint64_t time) const {
  return "at " + seconds_text(seconds_since_begin(time_of(rank, time)));
}

// -- groups and words

const recorder::RecordedSet* History::set_of(std::uint32_t set) const {
  const recorder::RecordedSet* without_members = nullptr;
  for (const int rank : recorded_) {
    const auto found = of(rank).recording->sets.find(set);
    if (found == of(rank).recording->sets.end()) continue;
    if (!found->second.members.empty()) return &found->second;
    if (without_members == nullptr) without_members = &found->second;
  }
  return without_members;
}

std::vector<int> History::members_of(std::uint32_t set) const {
  if (set == 0) return ranks_where([](const Facts&, int) { return true; });
  const recorder::RecordedSet* const found = set_of(set);
  return found != nullptr ? found->members : std::vector<int>{};
}

std::string History::in_set(std::uint32_t set) const {
  if (set == 0) return {};
  const recorder::RecordedSet* const found = set_of(set);
  return " in " + (found != nullptr ? found->words : "another group");
}

std::string History::name_of(std::uint64_t id) const {
  for (const int rank : recorded_) {
    if (std::string name = of(rank).recording->text(id); !name.empty()) return name;
  }
  base::Text text;
  text << '#' << std::hex << id;
  return text.str();
}

std::string History::text_of(const Request& request, const Open& open) const {
  if (makes_set(open)) return "the making of " + cut(name_of(request.id));
  if (request.id == 0)
    return "unnamed call number " + std::to_string(request.round) + " (" + kind_text(open.kind) + ")" +
           in_set(request.set);
  return kind_text(open.kind) + " of " + base::quoted(name_of(request.id)) + in_set(request.set);
}

std::string History::text_of(std::uint32_t set, const Running& batch) const {
  if (batch.names.empty()) return "unnamed calls" + in_set(set);
  std::string text = base::quoted(name_of(batch.names.front()));
  if (batch.members > 1) text += " and " + std::to_string(batch.members - 1) + " more";
  return "the batch of " + text + in_set(set);
}

std::string History::process_text(int rank) const {
  const recorder::Recording& its = *of(rank).recording;
  return std::to_string(its.process.pid) + " on " + its.host;
}

std::string History::last_text(int rank) const {
  const Facts& facts = of(rank);
  if (!facts.start_step.empty()) return "it was in the step " + base::quoted(facts.start_step) + " of the start";
  if (facts.leaving != 0) return "it had called shutdown";
  const recorder::Record& last = facts.last_deed;
  std::string text = last_words(facts);
  if (last.time != 0) text += " " + at(rank, last.time);
  if (facts.steps > 0) text += ", in its step " + std::to_string(facts.steps + 1);
  return text;
}

std::string History::last_words(const Facts& facts) const {
  const recorder::Record& last = facts.last_deed;
  switch (last.kind) {
  case Kind::submitted:
    return "it last submitted " + base::quoted(name_of(last.id));
  case Kind::called:
    return "it last made unnamed call number " + std::to_string(last.round);
  case Kind::batch_begun:
    return "it last began " + ((last.detail & recorder::kUnnamed) != 0
                                   ? std::string("a batch of unnamed calls")
                                   : "the batch of " + base::quoted(name_of(last.id)));
  case Kind::batch_ended:
    return "it last finished a batch";
  case Kind::step_ended:
    return "it last ended a step";
  default:
    break;
  }
  const std::uint64_t fast = facts.recording->fast_calls;
  return fast > 0 ? "it had made " + std::to_string(fast) + " short calls" : "it had made no call yet";
}

}  // namespace kolo::why
