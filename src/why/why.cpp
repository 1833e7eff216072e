// SPDX-License-Identifier: Apache-2.0
#include "why/why.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <kolo/error.hpp>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "core/collectives.hpp"
#include "core/signature.hpp"

namespace kolo::why {
namespace {

using recorder::Kind;
using recorder::State;

/// What has waited for less may be under way.
constexpr std::int64_t kLong = 500'000'000;
constexpr double kNanosecond = 1e-9;
/// Times and shifts that stand in files are cut to this (36 years), so that sums of them are numbers.
constexpr std::int64_t kFarAway = std::int64_t{1} << 60U;
constexpr std::int64_t kMinute = 60'000'000'000;
/// Of the requests that are told.
constexpr std::size_t kMostTold = 4;
/// Of groups that are being made, whose members are looked for.
constexpr std::size_t kMostMakings = 64;
/// Of a name, where the list of a group's ranks is one.
constexpr std::size_t kLongestName = 1000;

/// No ranks. It is never freed: nothing of it runs at the process's exit.
const std::vector<int>* nobody() {
  static const auto* const none = new std::vector<int>;
  return none;
}

constexpr std::array<std::string_view, 12> kVerdicts{"healthy", "killed", "stopped", "gave up",  "left",   "lost",
                                                     "late",    "order",  "slow",    "mismatch", "failed", "unclear"};

std::string ranks_text(const std::vector<int>& ranks) { return core::describe_ranks(ranks); }
std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

/// "1.234 s".
std::string seconds_text(double seconds) {
  const long long ms = std::llround(std::abs(seconds) * 1000);
  std::string rest = std::to_string(ms % 1000);
  rest.insert(0, 3 - rest.size(), '0');
  return (seconds < 0 && ms > 0 ? "-" : "") + std::to_string(ms / 1000) + "." + rest + " s";
}

/// The difference of two clocks, which stand in files, as no more than kFarAway.
std::int64_t difference(std::int64_t a, std::int64_t b) {
  // Exact enough: more than a day apart, no microsecond matters.
  const double far = static_cast<double>(a) - static_cast<double>(b);
  if (std::abs(far) >= static_cast<double>(kFarAway)) return far < 0 ? -kFarAway : kFarAway;
  return a - b;
}

/// The ranks that the text of a group names, "the group of ranks 0-2 and 5", of `size` ranks that there are.
std::vector<int> ranks_in(const std::string& text, int size) {
  std::vector<int> begins(static_cast<std::size_t>(size) +
                          1);  // of ranges that cover a rank: how many begin there, less
                               // those that end before
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
      if (first <= last) {
        ++begins[static_cast<std::size_t>(first)];
        --begins[static_cast<std::size_t>(last) + 1];
      }
      number = from = -1;
    }
  }
  std::vector<int> ranks;
  int covered = 0;
  for (int rank = 0; rank < size; ++rank) {
    covered += begins[static_cast<std::size_t>(rank)];
    if (covered > 0) ranks.push_back(rank);
  }
  return ranks;
}

/// The rank whose number begins at `at`, behind "rank "; -1: there is none.
int rank_at(std::string_view text, std::size_t at, int size) {
  constexpr std::string_view kWord = "rank ";
  if (at >= text.size() || text.compare(at, kWord.size(), kWord) != 0) return -1;
  const std::string_view rest = text.substr(at + kWord.size());
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::optional<int> rank = base::parse_number<int>(rest.substr(0, digits));
  return rank && *rank < size ? *rank : -1;
}

/// The rank that the sentence of a fatal error blames (control/sentences.hpp): "rank 2 was lost: ...", "...: rank 2 has
/// not submitted it", "rank 0, which coordinates the job, does not answer"; -1: none, or several.
int rank_blamed_by(std::string_view sentence, int size) {
  if (const int rank = rank_at(sentence, 0, size); rank >= 0) return rank;
  for (const std::string_view words : {" does not answer", " has not submitted", " has shut down", " has left"}) {
    const std::size_t end = sentence.find(words);
    if (end == std::string_view::npos) continue;
    return rank_at(sentence, sentence.rfind("rank ", end), size);
  }
  return -1;
}

/// Of a number that stands in a file.
std::string kind_text(std::uint8_t kind) {
  if (kind >= core::kCollectiveCount) return "a collective";
  return std::string(core::to_string(static_cast<core::CollectiveKind>(kind)));
}

/// A job's ranks on one axis of time, and what is concluded.
class Judge {
 public:
  Judge(const std::vector<Observed>& observed, std::int64_t now) : size_(observed.front().recording.size), now_(now) {
    facts_.resize(static_cast<std::size_t>(size_));
    for (const Observed& one : observed) {
      const auto rank = static_cast<std::size_t>(one.recording.rank);
      if (rank >= facts_.size() || one.recording.job != observed.front().recording.job) continue;
      facts_[rank] = facts_of(one.recording, one.life);
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (has_file(rank)) recorded_.push_back(rank);
    }
    now_ = std::clamp(now_, -kFarAway, kFarAway);
    align(observed.front().recording);
    if (std::none_of(facts_.begin(), facts_.end(),
                     [](const Facts& facts) { return facts.recording != nullptr && facts.life != Life::gone; })) {
      now_ = last_;
    }
  }

  Judgement judge() {
    tell_files();
    find();
    tell_waits();
    for (int rank = 0; rank < size_; ++rank) result_.ranks.push_back(line_of(rank));
    std::sort(result_.suspects.begin(), result_.suspects.end());
    return std::move(result_);
  }

 private:
  [[nodiscard]] const Facts& of(int rank) const { return facts_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool has_file(int rank) const { return of(rank).recording != nullptr; }

  // -- time

  /// Shifts all times to the clock of the first rank.
  void align(const recorder::Recording& reference) {
    bool is_first = true;
    for (Facts& facts : facts_) {
      if (facts.recording == nullptr) continue;
      const recorder::Recording& its = *facts.recording;
      if (its.boot != reference.boot) shifts_[its.rank] = shift_of(its, reference);
      const std::int64_t first = time_of(its.rank, facts.first != 0 ? facts.first : facts.last);
      const std::int64_t last = time_of(its.rank, facts.last);
      first_ = is_first ? first : std::min(first_, first);
      last_ = is_first ? last : std::max(last_, last);
      is_first = false;
    }
  }
  /// Of a clock of another boot: by the clocks of the day, unless one of these is wrong. All ranks begin their files in
  /// one step of the start, which then is one moment.
  std::int64_t shift_of(const recorder::Recording& its, const recorder::Recording& reference) {
    const std::int64_t by_start = difference(reference.monotonic_ns, its.monotonic_ns);
    const std::int64_t apart = difference(its.wall_ns, reference.wall_ns);
    if (std::abs(apart) > kMinute) {
      wrong_clocks_.insert(its.host);
      return by_start;
    }
    other_clocks_.insert(its.host);
    return difference(by_start + apart, 0);
  }
  [[nodiscard]] std::int64_t time_of(int rank, std::uint64_t time) const {
    const auto shift = shifts_.find(rank);
    const auto there = static_cast<std::int64_t>(std::min(time, static_cast<std::uint64_t>(kFarAway)));
    return shift == shifts_.end() ? there : there + shift->second;
  }
  /// Since the job's first event.
  [[nodiscard]] double seconds_at(int rank, std::uint64_t time) const {
    return static_cast<double>(time_of(rank, time) - first_) * kNanosecond;
  }
  [[nodiscard]] std::string at(int rank, std::uint64_t time) const {
    return "at " + seconds_text(seconds_at(rank, time));
  }
  /// When the rank's work ended: with its fatal error, else now.
  [[nodiscard]] std::int64_t end_of(int rank) const {
    return of(rank).fault ? time_of(rank, of(rank).fault->time) : now_;
  }

  // -- words

  [[nodiscard]] std::string name_of(std::uint64_t id) const {
    for (const int rank : recorded_) {
      if (std::string name = of(rank).recording->text(id); !name.empty()) return name;
    }
    base::Text text;
    text << '#' << std::hex << id;
    return text.str();
  }
  [[nodiscard]] const recorder::RecordedSet* set_of(std::uint32_t set) const {
    const recorder::RecordedSet* without_members = nullptr;
    for (const int rank : recorded_) {
      const auto found = of(rank).recording->sets.find(set);
      if (found == of(rank).recording->sets.end()) continue;
      if (!found->second.members.empty()) return &found->second;
      if (without_members == nullptr) without_members = &found->second;
    }
    return without_members;
  }
  [[nodiscard]] std::string in_set(std::uint32_t set) const {
    if (set == 0) return {};
    const recorder::RecordedSet* const found = set_of(set);
    return " in " + (found != nullptr ? found->words : "another group");
  }
  [[nodiscard]] bool makes_set(const Open& open) const {
    return static_cast<core::CollectiveKind>(open.kind) == core::CollectiveKind::add_process_set;
  }
  static std::string cut(std::string text) {
    if (text.size() > kLongestName) text = text.substr(0, kLongestName) + "...";
    return text;
  }
  [[nodiscard]] std::string text_of(const Request& request, const Open& open) const {
    if (makes_set(open)) return "the making of " + cut(name_of(request.id));
    if (request.id == 0)
      return "unnamed call number " + std::to_string(request.round) + " (" + kind_text(open.kind) + ")" +
             in_set(request.set);
    return kind_text(open.kind) + " of " + base::quoted(name_of(request.id)) + in_set(request.set);
  }
  [[nodiscard]] std::string text_of(std::uint32_t set, const Running& batch) const {
    if (batch.names.empty()) return "unnamed calls" + in_set(set);
    std::string text = base::quoted(name_of(batch.names.front()));
    if (batch.members > 1) text += " and " + std::to_string(batch.members - 1) + " more";
    return "the batch of " + text + in_set(set);
  }
  [[nodiscard]] std::vector<int> members_of(std::uint32_t set) const {
    std::vector<int> members;
    if (set == 0) {
      for (int rank = 0; rank < size_; ++rank) members.push_back(rank);
    } else if (const recorder::RecordedSet* const found = set_of(set)) {
      members = found->members;
    }
    return members;
  }

  // -- what is open

  struct Waited {
    std::int64_t since = 0;                      ///< the first
    std::vector<int> waiting;                    ///< ranks, ascending
    std::vector<int> missing;                    ///< ranks that have not submitted it
    const std::vector<int>* unknown = nobody();  ///< members without a file
    Open open;
  };

  struct Group {
    std::vector<int> recorded;  ///< members that have a file, ascending
    std::vector<int> unknown;   ///< and those without
  };
  [[nodiscard]] Group group_of(std::vector<int> members) const {
    Group group;
    std::sort(members.begin(), members.end());
    for (const int rank : members) (has_file(rank) ? group.recorded : group.unknown).push_back(rank);
    return group;
  }
  const Group& group_of(std::uint32_t set) {
    const auto [known, is_new] = groups_.try_emplace(set);
    if (is_new) known->second = group_of(members_of(set));
    return known->second;
  }

  /// Whether what is open since then has waited for long. Of one that has ended nobody knows when: what it had open, it
  /// never got.
  [[nodiscard]] bool is_long(int rank, std::int64_t since) const {
    return end_of(rank) >= since + kLong || of(rank).fault || of(rank).vanished();
  }

  void collect_requests() {
    for (const int rank : recorded_) {
      for (const auto& [request, open] : of(rank).work.requests) {
        const std::int64_t since = time_of(rank, open.since);
        if (!is_long(rank, since)) continue;
        Waited& one = requests_[request];
        if (one.waiting.empty() || since < one.since) one.since = since;
        one.waiting.push_back(rank);
        one.open = open;
      }
    }
    for (auto& [request, one] : requests_) {
      if (!makes_set(one.open)) {
        find_missing(request, one, group_of(request.set));
      } else if (makings_.size() < kMostMakings) {
        find_missing(request, one, makings_.emplace_back(group_of(ranks_in(name_of(request.id), size_))));
      }
    }
  }
  void find_missing(const Request& request, Waited& one, const Group& group) const {
    for (const int rank : group.recorded) {
      const bool may_be_forgotten = time_of(rank, of(rank).first) > one.since;
      if (!std::binary_search(one.waiting.begin(), one.waiting.end(), rank) &&
          !of(rank).has_submitted(request, may_be_forgotten)) {
        one.missing.push_back(rank);
      }
    }
    one.unknown = &group.unknown;
  }

  struct Batch {
    std::int64_t since = 0;
    std::vector<int> running;
    std::vector<int> behind;
    const std::vector<int>* unknown = nobody();
    Running what;
  };

  void collect_batches() {
    for (const int rank : recorded_) {
      for (const auto& [number, running] : of(rank).work.batches) {
        const std::int64_t since = time_of(rank, running.since);
        if (!is_long(rank, since)) continue;
        Batch& one = batches_[number];
        if (one.running.empty() || since < one.since) one.since = since;
        one.running.push_back(rank);
        one.what = running;
      }
    }
    for (auto& [number, one] : batches_) {
      const Group& group = group_of(number.first);
      one.unknown = &group.unknown;
      for (const int rank : group.recorded) {
        const auto begun = of(rank).batches_begun.find(number.first);
        if (begun == of(rank).batches_begun.end() || begun->second < number.second) one.behind.push_back(rank);
      }
    }
  }

  // -- the suspects

  void suspect(Verdict verdict, std::vector<int> ranks) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    result_.verdict = verdict;
    result_.suspects = std::move(ranks);
  }
  /// One sentence is one line, whatever a recorder's texts are.
  void say(const std::string& sentence) { result_.sentences.push_back(base::on_one_line(sentence)); }

  template <class Condition>
  [[nodiscard]] std::vector<int> ranks_where(const Condition& condition) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (condition(of(rank), rank)) ranks.push_back(rank);
    }
    return ranks;
  }

  void find() {
    collect_requests();
    collect_batches();
    tell_errors();
    const bool is_ended_by_mismatch = std::any_of(facts_.begin(), facts_.end(), [](const Facts& facts) {
      return facts.life == Life::gone && facts.ends_with_failure() && !facts.mismatches.empty() &&
             facts.mismatches.back().time == facts.failed_last;
    });
    if (find_ended() || (is_ended_by_mismatch && find_mismatch()) || find_told() || find_waited_for()) return;
    if (find_mismatch()) return;
    const bool failed = !ranks_where([](const Facts& facts, int) { return facts.fault.has_value(); }).empty();
    if (failed) {
      suspect(Verdict::failed, {});
      say("No rank is known to have caused that.");
    } else if (requests_.empty() && batches_.empty()) {
      suspect(Verdict::healthy, {});
      say("Nothing waits for long: no rank holds the others up.");
    } else {
      suspect(Verdict::unclear, {});
      say("The recorders do not say which rank holds the others up.");
    }
  }

  /// Processes that ended or are stopped.
  bool find_ended() {
    std::vector<int> gone = ranks_where([](const Facts& facts, int) { return facts.vanished(); });
    const std::vector<int> stopped = ranks_where([](const Facts& facts, int) { return facts.life == Life::stopped; });
    if (gone.empty() && stopped.empty()) return false;
    if (stopped.empty() && may_have_followed(gone)) return tell_followers(gone);
    if (tell_end_of_all(gone)) return true;
    // All may have been ended because of one: which one, those say that saw it.
    if (gone.size() > 1) {
      std::set<int> seen;
      for (const int rank : named_by_others()) seen.insert(rank);
      std::vector<int> named;
      for (const int rank : gone) {
        if (seen.count(rank) > 0) named.push_back(rank);
      }
      if (!named.empty() && named.size() < gone.size()) {
        say(upper(ranks_text(gone)) + " ended without a word; the others named " + ranks_text(named) + " before that.");
        gone = named;
      }
    }
    for (const int rank : gone) {
      say(upper(rank_text(rank)) + " was killed: its process (" + process_text(rank) +
          ") has ended without shutdown and without an error of Kolo's, as by a signal; " + last_text(rank) + ".");
    }
    for (const int rank : stopped) {
      say(upper(rank_text(rank)) + " is stopped, by a signal or a debugger: process " + process_text(rank) + "; " +
          last_text(rank) + ".");
    }
    const bool is_stop = !stopped.empty();
    suspect(is_stop ? Verdict::stopped : Verdict::killed, is_stop ? stopped : gone);
    if (is_stop && !gone.empty()) result_.suspects.insert(result_.suspects.end(), gone.begin(), gone.end());
    return true;
  }

  /// All were ended, and none of them before the others, as by a scheduler or by Ctrl-C: whom they waited for then is
  /// told. If the log had called that rank late, it is the suspect: the job hung, and was ended because of it.
  bool tell_end_of_all(const std::vector<int>& gone) {
    if (gone.size() < 2 || gone.size() < recorded_.size()) return false;
    const bool is_late = std::any_of(requests_.begin(), requests_.end(), [this](const auto& request) {
      return std::any_of(request.second.missing.begin(), request.second.missing.end(),
                         [this](int rank) { return is_called_late(rank); });
    });
    if (!is_late) return false;
    say(upper(ranks_text(gone)) + " were ended together, as by a signal.");
    return find_late();
  }

  /// Whether these ended because of a rank that has no file: in the start, which that rank may not have survived for
  /// long enough to have one, or as their errors say.
  [[nodiscard]] bool may_have_followed(const std::vector<int>& gone) const {
    if (silent_ranks().empty()) return false;
    const std::vector<int> named = named_by_others();
    if (!named.empty()) return !has_file(named.front());
    return std::all_of(gone.begin(), gone.end(), [this](int rank) { return !of(rank).start_step.empty(); });
  }
  /// Nobody is the suspect then, unless others say who: which is looked for next (false).
  bool tell_followers(const std::vector<int>& gone) {
    const bool is_told = !named_by_others().empty();
    say(upper(ranks_text(gone)) + " ended without a word" +
        (is_told ? "." : " in the start, perhaps because of a rank that has no file."));
    if (!is_told) suspect(Verdict::unclear, {});
    return !is_told;
  }

  /// Ranks that have no file, and have not left in order.
  [[nodiscard]] std::vector<int> silent_ranks() const {
    std::set<int> left;
    for (const int rank : recorded_) {
      for (const auto& [other, time] : of(rank).left) left.insert(other);
    }
    return ranks_where(
        [&left](const Facts& facts, int rank) { return facts.recording == nullptr && left.count(rank) == 0; });
  }

  /// Ranks that the job's error, or the ends that others saw, name.
  [[nodiscard]] std::vector<int> named_by_others() const {
    for (int rank = 0; rank < size_; ++rank) {
      const int blamed = of(rank).blamed;
      if (blamed >= 0 && blamed < size_ && !of(blamed).ends_with_failure()) return {blamed};
    }
    std::map<int, std::int64_t> seen;
    for (int rank = 0; rank < size_; ++rank) {
      for (const Heard& death : of(rank).deaths) {
        if (death.rank < 0 || death.rank >= size_ || death.rank == rank || of(death.rank).ends_with_failure()) continue;
        if (of(rank).left.count(death.rank) > 0 || of(death.rank).has_closed()) continue;  // it had left in order
        const std::int64_t time = time_of(rank, death.time);
        const auto known = seen.emplace(death.rank, time).first;
        known->second = std::min(known->second, time);
      }
    }
    if (seen.empty()) return named_by_sentence();
    // The end of one brings that of others: the first.
    const auto first =
        std::min_element(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return {first->first};
  }

  /// Where neither the log nor the system has said it: as the first fatal error says.
  [[nodiscard]] std::vector<int> named_by_sentence() const {
    int named = -1;
    std::int64_t earliest = 0;
    for (int rank = 0; rank < size_; ++rank) {
      if (!of(rank).fault) continue;
      const int blamed = rank_blamed_by(of(rank).fault->sentence, size_);
      const std::int64_t time = time_of(rank, of(rank).fault->time);
      if (blamed < 0 || of(blamed).ends_with_failure() || (named >= 0 && time >= earliest)) continue;
      named = blamed;
      earliest = time;
    }
    if (named < 0) return {};
    return {named};
  }

  bool find_told() {
    const bool is_decided = std::any_of(
        facts_.begin(), facts_.end(), [this](const Facts& facts) { return facts.blamed >= 0 && facts.blamed < size_; });
    if (!is_decided && find_giving_up()) return true;
    std::vector<int> named = named_by_others();
    if (!named.empty()) {
      const int rank = named.front();
      const Facts& facts = of(rank);
      if (facts.reported && facts.reported->rank == rank) return tell_giving_up(rank);
      if (has_left(rank)) return tell_left(rank);
      const bool is_late = lateness_named(rank);
      say(upper(rank_text(rank)) +
          (is_late ? " kept the others waiting until a deadline passed" : " was lost, as other ranks say") +
          (has_file(rank) ? "; " + last_text(rank) : "; it has no file here") + ".");
      suspect(is_late ? Verdict::late : Verdict::lost, {rank});
      return true;
    }
    // Somebody left whom others needed.
    const std::vector<int> deserted = ranks_where([](const Facts& facts, int) {
      return (facts.fault && static_cast<ErrorCode>(facts.fault->code) == ErrorCode::rank_lost) ||
             std::any_of(facts.failures.begin(), facts.failures.end(),
                         [](const Heard& one) { return static_cast<ErrorCode>(one.code) == ErrorCode::rank_lost; });
    });
    if (const int left = left_by_first_failure(deserted); left >= 0) return tell_left(left);
    if (!deserted.empty()) {
      if (const int first = first_to_leave(); first >= 0) return tell_left(first);
    }
    return false;
  }

  /// The rank that has left, as the first failure among these ranks says; -1: none says so. A sentence names the first
  /// rank of a chain (control/messages.hpp, "First causes"), and a rank that is in the middle of one fails earlier.
  [[nodiscard]] int left_by_first_failure(const std::vector<int>& ranks) const {
    int left = -1;
    std::uint64_t earliest = 0;
    for (const int rank : ranks) {
      for (const Heard& failure : of(rank).failures) {
        const int named = rank_blamed_by(failure.sentence, size_);
        const std::uint64_t time = time_of(rank, failure.time);
        if (named < 0 || (left >= 0 && time >= earliest)) continue;
        left = named;
        earliest = time;
      }
    }
    return left;
  }

  /// Who said itself that it cannot go on.
  bool find_giving_up() {
    const std::vector<int> own =
        ranks_where([](const Facts& facts, int rank) { return facts.reported && facts.reported->rank == rank; });
    if (own.empty()) return false;
    return tell_giving_up(*std::min_element(own.begin(), own.end(), [this](int a, int b) {
      return time_of(a, of(a).reported->time) < time_of(b, of(b).reported->time);
    }));
  }
  bool tell_giving_up(int rank) {
    const Heard& said = *of(rank).reported;
    say(upper(rank_text(rank)) + " gave up " + at(rank, said.time) + ": " + said.sentence);
    suspect(Verdict::gave_up, {rank});
    return true;
  }

  /// Whether the log has said that the rank is late.
  [[nodiscard]] bool is_called_late(int rank) const {
    return std::any_of(facts_.begin(), facts_.end(), [rank](const Facts& facts) {
      return std::any_of(facts.late.begin(), facts.late.end(), [rank](const Heard& one) { return one.rank == rank; });
    });
  }
  /// The same, or a deadline has ended the job.
  [[nodiscard]] bool lateness_named(int rank) const {
    return is_called_late(rank) || std::any_of(facts_.begin(), facts_.end(), [](const Facts& facts) {
             return facts.fault && static_cast<ErrorCode>(facts.fault->code) == ErrorCode::timeout;
           });
  }

  /// The rank that was the first to leave, by its own file, or as others heard.
  [[nodiscard]] int first_to_leave() const {
    int first = -1;
    std::int64_t earliest = 0;
    const auto consider = [&](int rank, std::int64_t time) {
      if (first >= 0 && time >= earliest) return;
      first = rank;
      earliest = time;
    };
    for (int rank = 0; rank < size_; ++rank) {
      if (of(rank).leaving != 0) consider(rank, time_of(rank, of(rank).leaving));
      for (const auto& [other, time] : of(rank).left) {
        if (other >= 0 && other < size_ && of(other).leaving == 0) consider(other, time_of(rank, time));
      }
    }
    return first;
  }

  /// Whether it left before it was told of an error, by its own file, or as others heard.
  [[nodiscard]] bool has_left(int rank) const {
    const Facts& facts = of(rank);
    if (facts.leaving != 0) return !facts.fault || facts.leaving < facts.fault->time;
    return std::any_of(recorded_.begin(), recorded_.end(),
                       [this, rank](int other) { return of(other).left.count(rank) > 0; });
  }
  bool tell_left(int rank) {
    const Facts& facts = of(rank);
    say(upper(rank_text(rank)) + " left (kolo::shutdown, or the end of its program)" +
        (facts.leaving != 0 ? " " + at(rank, facts.leaving) : std::string()) +
        " while other ranks had operations that need it" + (has_file(rank) ? "; before, " + last_words(facts) : "") +
        ".");
    suspect(Verdict::left, {rank});
    return true;
  }

  bool find_waited_for() {
    if (!requests_.empty()) return find_late();
    for (const auto& [number, batch] : batches_) {
      const std::vector<int>& ranks = !batch.behind.empty() ? batch.behind : *batch.unknown;
      if (ranks.empty() || batch.running.size() + ranks.size() > static_cast<std::size_t>(size_)) continue;
      suspect(Verdict::slow, ranks);
      say(upper(ranks_text(ranks)) + (ranks.size() == 1 ? " has" : " have") + " not come to " +
          text_of(number.first, batch.what) + ", which " + ranks_text(batch.running) +
          (batch.running.size() == 1 ? " runs" : " run") + ".");
      return true;
    }
    return false;
  }

  /// From requests to those whom they wait for, and on from these.
  bool find_late() {
    std::set<int> waiting;
    for (const auto& [request, one] : requests_) waiting.insert(one.waiting.begin(), one.waiting.end());
    for (int rank = 0; rank < size_; ++rank) {
      if (!of(rank).work.messages.empty()) waiting.insert(rank);
    }
    std::set<int> late;
    std::set<int> circle;
    std::set<const std::vector<int>*> unknown;
    for (const auto& [request, one] : requests_) {
      for (const int rank : one.missing) (waiting.count(rank) > 0 ? circle : late).insert(rank);
      unknown.insert(one.unknown);
    }
    for (const std::vector<int>* const ranks : unknown) late.insert(ranks->begin(), ranks->end());
    if (late.empty() && circle.empty()) return false;
    tell_requests();
    for (const int rank : late) {
      if (has_file(rank)) say(upper(rank_text(rank)) + ": " + last_text(rank) + doing_text(rank) + ".");
    }
    if (late.empty()) {
      say("These ranks wait for each other: they make their calls in different orders.");
      suspect(Verdict::order, {circle.begin(), circle.end()});
    } else {
      suspect(Verdict::late, {late.begin(), late.end()});
    }
    return true;
  }

  /// Each request that some ranks wait for, and for whom.
  void tell_requests() {
    std::size_t told = 0;
    for (const auto& [request, one] : requests_) {
      const std::vector<int>& lacking = one.missing.empty() ? *one.unknown : one.missing;
      if (lacking.empty() || told++ >= kMostTold) continue;
      say(upper(ranks_text(lacking)) + (lacking.size() == 1 ? " has" : " have") + " not submitted " +
          text_of(request, one.open) + ", for which " + ranks_text(one.waiting) +
          (one.waiting.size() == 1 ? " waits" : " wait") + " since " +
          seconds_text(static_cast<double>(one.since - first_) * kNanosecond) + ".");
    }
    if (told > kMostTold) say("And " + std::to_string(told - kMostTold) + " more requests.");
    has_told_requests_ = true;
  }

  bool find_mismatch() {
    for (int rank = 0; rank < size_; ++rank) {
      if (of(rank).mismatches.empty()) continue;
      const Heard& first = of(rank).mismatches.front();
      say("Ranks disagreed " + at(rank, first.time) + ": " + first.sentence);
      suspect(Verdict::mismatch, {});
      return true;
    }
    return false;
  }

  // -- telling

  static std::string joined(const std::set<std::string>& hosts) {
    std::string text;
    for (const std::string& host : hosts) text += (text.empty() ? "" : ", ") + host;
    return text;
  }

  /// Nobody is called killed because his process is not to be seen from here.
  void tell_unseen() {
    const std::vector<int> unseen =
        ranks_where([](const Facts& facts, int) { return facts.recording != nullptr && facts.life == Life::unknown; });
    if (unseen.empty()) return;
    say("The " + std::string(unseen.size() == 1 ? "process" : "processes") + " of " + ranks_text(unseen) +
        " cannot be seen from here: another machine or container, or this one before it was started anew.");
  }

  void tell_files() {
    const std::vector<int> silent = silent_ranks();
    const std::vector<int> left = ranks_where([&silent](const Facts& facts, int rank) {
      return facts.recording == nullptr && !std::binary_search(silent.begin(), silent.end(), rank);
    });
    if (!left.empty())
      say(upper(ranks_text(left)) + " left in order, and removed " + (left.size() == 1 ? "its file." : "their files."));
    if (!silent.empty()) {
      say("There is no file of " + ranks_text(silent) +
          ": their machine, or their directory, is another one, or they left in order, or ended before they had one.");
    }
    if (!other_clocks_.empty()) {
      say("Times of " + joined(other_clocks_) +
          " are placed by the machines' clocks of the day, which may differ by some milliseconds.");
    }
    if (!wrong_clocks_.empty()) {
      say("The clock of the day of " + joined(wrong_clocks_) +
          " differs by more than a minute; times there are placed by the start of the job.");
    }
    tell_unseen();
  }

  /// What ranks were told, each sentence once.
  void tell_errors() {
    std::map<std::string, std::vector<int>> told;
    for (int rank = 0; rank < size_; ++rank) {
      if (of(rank).fault) told[of(rank).fault->sentence].push_back(rank);
    }
    for (const auto& [sentence, ranks] : told) {
      const int first = ranks.front();
      say(upper(ranks_text(ranks)) + (ranks.size() == 1 ? " was" : " were") + " told " +
          at(first, of(first).fault->time) + ": " + sentence);
    }
  }

  /// What was in flight, and names it.
  void tell_waits() {
    std::set<std::string> names;
    for (const auto& [request, one] : requests_) {
      if (request.id != 0 && !makes_set(one.open)) names.insert(name_of(request.id));
    }
    if (!has_told_requests_) tell_requests();
    std::size_t told = 0;
    for (const auto& [number, batch] : batches_) {
      for (const std::uint64_t id : batch.what.names) names.insert(name_of(id));
      if (told++ >= kMostTold) continue;
      say("In flight: " + text_of(number.first, batch.what) + ", which " + ranks_text(batch.running) +
          (batch.running.size() == 1 ? " runs" : " run") +
          (batch.behind.empty() ? "." : ", and " + ranks_text(batch.behind) + " not yet."));
    }
    if (told > kMostTold) say("And " + std::to_string(told - kMostTold) + " more batches.");
    for (int rank = 0; rank < size_; ++rank) tell_messages(rank);
    result_.tensors.assign(names.begin(), names.end());
  }

  void tell_messages(int rank) {
    for (const auto& [id, message] : of(rank).work.messages) {
      if (end_of(rank) < time_of(rank, message.since) + kLong) continue;
      const std::string peer =
          message.peer == recorder::kAnyRank ? "any rank" : rank_text(static_cast<int>(message.peer));
      say(upper(rank_text(rank)) + (message.sends ? " sends to " : " receives from ") + peer + " since " +
          seconds_text(seconds_at(rank, message.since)) + " (tag " +
          std::to_string(static_cast<std::int32_t>(message.tag)) + ").");
      return;
    }
  }

  static std::string upper(std::string text) {
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  }
  [[nodiscard]] std::string process_text(int rank) const {
    const recorder::Recording& its = *of(rank).recording;
    return std::to_string(its.process.pid) + " on " + its.host;
  }

  /// "it last finished a batch of "w", at 1.234 s".
  [[nodiscard]] std::string last_text(int rank) const {
    const Facts& facts = of(rank);
    if (!facts.start_step.empty()) return "it was in the step " + base::quoted(facts.start_step) + " of the start";
    if (facts.leaving != 0) return "it had called shutdown";
    const recorder::Record& last = facts.last_deed;
    std::string text = last_words(facts);
    if (last.time != 0) text += " " + at(rank, last.time);
    if (facts.steps > 0) text += ", in its step " + std::to_string(facts.steps + 1);
    return text;
  }
  [[nodiscard]] std::string last_words(const Facts& facts) const {
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
  [[nodiscard]] std::string doing_text(int rank) const {
    const Facts& facts = of(rank);
    if (facts.life != Life::runs || facts.sleeping != 0 || !facts.work.requests.empty() || !facts.work.messages.empty())
      return {};
    return ", and no thread of it waits inside Kolo: it computes, or hangs in the program";
  }

  [[nodiscard]] RankLine line_of(int rank) const {
    RankLine line;
    line.rank = rank;
    const Facts& facts = of(rank);
    if (facts.recording == nullptr) {
      line.state = "no file";
      return line;
    }
    line.host = base::on_one_line(facts.recording->host);
    line.pid = facts.recording->process.pid;
    switch (facts.life) {
    case Life::runs:
      line.state = "runs";
      break;
    case Life::stopped:
      line.state = "is stopped";
      break;
    case Life::gone:
      line.state = facts.vanished() ? "was killed" : "has ended";
      break;
    case Life::unknown:
      line.state = "cannot be seen from here";
      break;
    }
    if (facts.fault || (facts.life == Life::gone && facts.ends_with_failure())) line.state += " after an error";
    line.last = base::on_one_line(last_text(rank));
    line.last_at = seconds_at(rank, facts.last);
    line.batches = facts.batches;
    line.awaited = facts.awaited;
    return line;
  }

  const int size_;
  std::vector<Facts> facts_;
  std::vector<int> recorded_;  ///< ranks that have a file, ascending
  std::map<int, std::int64_t> shifts_;
  std::set<std::string> other_clocks_;
  std::set<std::string> wrong_clocks_;
  std::int64_t now_;
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;
  std::map<Request, Waited> requests_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Batch> batches_;
  std::map<std::uint32_t, Group> groups_;  ///< by set
  std::deque<Group> makings_;
  bool has_told_requests_ = false;
  Judgement result_;
};

}  // namespace

std::string_view to_string(Verdict verdict) noexcept { return kVerdicts[static_cast<std::size_t>(verdict)]; }

Judgement judge(const std::vector<Observed>& observed, std::int64_t now_ns) {
  if (observed.empty()) return {};
  return Judge(observed, now_ns).judge();
}

}  // namespace kolo::why
