// SPDX-License-Identifier: Apache-2.0
#include "control/sentences.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/quote.hpp"
#include "base/text.hpp"

namespace kolo::control {
namespace {

constexpr const char* kUndefined = " The contents of the buffers in flight are undefined.";
constexpr const char* kGoesOn = " The call fails on every rank of the group, and the job goes on.";

/// The difference to name: the first, in the order of aspects, that any opinion has from the first one.
core::Difference main_difference(const std::vector<Opinion>& opinions) {
  std::optional<core::Difference> main;
  for (const Opinion& other : opinions) {
    const auto difference = core::first_difference(opinions.front().signature, other.signature);
    if (difference && (!main || *difference < *main)) main = difference;
  }
  return main.value_or(core::Difference{});
}

const char* one_or_many(const std::vector<std::int32_t>& ranks, const char* one, const char* many) {
  return ranks.size() == 1 ? one : many;
}

std::string has_departed(const std::vector<std::int32_t>& ranks) {
  return core::describe_ranks(ranks) + one_or_many(ranks, " has", " have") + " shut down";
}

/// "rank 1 has shut down, and rank 2 because of that".
std::string has_departed(const Leavers& ranks) {
  const std::string text = has_departed(ranks.first);
  return ranks.followers.empty() ? text : text + ", and " + core::describe_ranks(ranks.followers) + " because of that";
}

std::string has_joined(const std::vector<std::int32_t>& ranks) {
  return core::describe_ranks(ranks) + one_or_many(ranks, " has", " have") + " joined";
}

std::string cannot_run(const std::string& subject, core::CollectiveKind kind, const std::vector<std::int32_t>& absent) {
  return subject + ": the " + std::string(core::to_string(kind)) + " cannot run, because " + has_joined(absent);
}

/// The request without its group, which it does not make itself.
std::string what_of(const Request& request) {
  if (request.is_call()) return "unnamed call number " + std::to_string(request.round);
  return "tensor " + base::quoted(request.name);
}

/// The act of a rank for which the others wait.
const char* deed_of(bool join, bool group) {
  return join ? "joined" : group ? "called Group::of or split for it" : "submitted it";
}

std::string not_completed(const std::string& subject, bool is_group, double waited_s) {
  return subject + " has not " + (is_group ? "been made" : "completed") + " within " + spell_seconds(waited_s) + ": ";
}

// ---- why a wait has not ended; see deadline_passed

std::string absence_of(const std::vector<std::int32_t>& missing, const Wait& wait, const GroupOf& group_of_set) {
  std::string text =
      core::describe_ranks(missing) + one_or_many(missing, " has not ", " have not ") + deed_of(wait.join, wait.group);
  if (!wait.departed.empty()) text += " (" + has_departed(wait.departed) + ")";
  std::map<std::string, std::vector<std::int32_t>> waits;
  bool other_groups = false;
  for (const Answer& answer : wait.answers) {
    if (answer.submitted || !answer.wait) continue;
    waits[subject(group_of_set(answer.wait->set), *answer.wait)].push_back(answer.rank);
    other_groups |= !answer.wait->members.empty();
  }
  for (const auto& [what, ranks] : waits) {
    text += "; " + core::describe_ranks(ranks) + one_or_many(ranks, " waits", " wait") + " for " + what;
  }
  if (wait.group && other_groups) text += "; all ranks of a group must give the same list and the same name";
  return text;
}

std::string because_of(std::int32_t cause) {
  return cause < 0 ? std::string() : "rank " + std::to_string(cause) + " has left the job, and because of that ";
}

/// The one cause of all these ranks' ends, which is none of them; -1: there is no such rank.
std::int32_t common_cause(const std::vector<std::int32_t>& ranks, const std::map<std::int32_t, std::int32_t>& causes) {
  std::int32_t common = -1;
  for (const std::int32_t rank : ranks) {
    const auto cause = causes.find(rank);
    if (cause == causes.end() || (common >= 0 && cause->second != common)) return -1;
    common = cause->second;
  }
  return common;
}

std::string standstill_of(const std::vector<std::int32_t>& standing) {
  return core::describe_ranks(standing) + one_or_many(standing, " makes", " make") + " no progress with it";
}

std::string waits_of(const Wait& wait) {
  std::string text;
  for (const Answer& answer : wait.answers) {
    if (answer.doing != Doing::waiting || answer.awaited.empty()) continue;
    text += "; rank " + std::to_string(answer.rank) + " waits for data of " + core::describe_ranks(answer.awaited);
  }
  return text;
}

}  // namespace

std::string spell_seconds(double seconds) {
  return (seconds < 100 ? base::spell(seconds, 3) : std::to_string(std::llround(seconds))) + " s";
}

std::string group_of(const std::string& name, const std::vector<std::int32_t>& members) {
  return (name.empty() ? "the group" : "group " + base::quoted(name)) + (" of " + core::describe_ranks(members));
}

std::string subject(const std::string& group, const Request& request) {
  if (!request.members.empty()) return group_of(request.name, request.members);
  if (request.join) return join_of(group);
  return what_of(request) + (group.empty() ? "" : " of " + group);
}

std::string join_of(const std::string& group) { return group.empty() ? "the join" : "the join of " + group; }

std::string stalled(const std::string& group, const Stalled& stall) {
  const Request& request = stall.request;
  const bool is_group = !request.members.empty();
  std::string text = subject(group, request);
  if (request.is_call()) {
    text = what_of(request) + " (" + std::string(core::to_string(stall.kind)) + ")";
    if (!group.empty()) text += " of " + group;
  }
  text += " has waited for " + spell_seconds(stall.waited_s) + ": ";
  if (!stall.silent.empty()) text += silence_of(stall.silent) + (stall.missing.empty() ? "." : "; ");
  if (stall.missing.empty()) return text;
  return text + core::describe_ranks(stall.missing) + one_or_many(stall.missing, " has not ", " have not ") +
         deed_of(request.join, is_group) + (request.join ? ", and nothing runs" : "") + ". Either " +
         one_or_many(stall.missing, "this rank is", "these ranks are") + " slow, or the program does not " +
         (request.join ? "join there."
          : is_group   ? "ask for a group of the same ranks and name there."
                       : "submit it there.");
}

std::string disagreement(const std::string& subject, const std::string& group, const std::vector<Opinion>& opinions) {
  const core::Difference difference = main_difference(opinions);
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> groups;
  for (const Opinion& opinion : opinions) {
    const std::string value = core::describe_value(opinion.signature, difference);
    auto group = std::find_if(groups.begin(), groups.end(), [&value](const auto& g) { return g.first == value; });
    if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
    group->second.insert(group->second.end(), opinion.ranks.begin(), opinion.ranks.end());
  }
  for (auto& [value, ranks] : groups) std::sort(ranks.begin(), ranks.end());
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second < b.second; });

  const core::CollectiveKind kind = opinions.front().signature.kind;
  const bool is_about_order = difference.aspect == core::Aspect::ranks && core::traits_of(kind).makes_set;
  std::string text = subject;
  if (difference.aspect != core::Aspect::kind && !is_about_order) text += " of " + std::string(core::to_string(kind));
  if (!group.empty()) text += " in " + group;
  text += ": ranks disagree about " + (is_about_order ? "the order of its ranks" : core::describe(difference)) + ": ";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += (i == 0 ? "" : "; ") + groups[i].first + " on " + core::describe_ranks(groups[i].second);
  }
  return text + (is_about_order ? ". The group was not made; give the same order on every rank."
                                : ". The operation did not run; submit the same on every rank.");
}

std::string unanswered(const std::string& subject, bool is_group, double waited_s, const std::string& silent) {
  return not_completed(subject, is_group, waited_s) + silent + "." + kUndefined;
}

std::string silence_of(const std::vector<std::int32_t>& silent) {
  return core::describe_ranks(silent) + one_or_many(silent, " does", " do") + " not answer; " +
         one_or_many(silent, "its process is", "their processes are") + " stopped, or kept from running";
}

Verdict deadline_passed(const std::string& subject, const Wait& wait, const GroupOf& group_of_set) {
  const std::string text = not_completed(subject, wait.group, wait.waited_s);
  std::vector<std::int32_t> missing;
  std::vector<std::int32_t> standing;
  for (const Answer& answer : wait.answers) {
    if (!answer.submitted) missing.push_back(answer.rank);
    if (answer.doing == Doing::standing) standing.push_back(answer.rank);
  }
  const auto blame = [&](const std::vector<std::int32_t>& ranks, const std::string& why) {
    return Verdict{text + why + "." + (wait.alone ? kGoesOn : kUndefined), ranks.size() == 1 ? ranks.front() : -1};
  };
  if (!wait.silent.empty()) return blame(wait.silent, silence_of(wait.silent));
  missing.insert(missing.end(), wait.departed.begin(), wait.departed.end());
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  const std::int32_t cause = common_cause(missing, wait.causes);
  if (!missing.empty()) {
    Verdict verdict = blame(missing, because_of(cause) + absence_of(missing, wait, group_of_set));
    if (cause >= 0) verdict.rank = cause;
    return verdict;
  }
  const std::string all = std::string("every rank has ") + deed_of(wait.join, wait.group);
  if (!standing.empty()) return blame(standing, all + ", but " + standstill_of(standing));
  return blame({}, all + waits_of(wait));
}

std::string too_many_sets(const std::string& subject, std::int32_t rank, std::uint32_t most) {
  return subject + " cannot be made: rank " + std::to_string(rank) + " is in " + std::to_string(most) +
         (most == 1 ? " group" : " groups") +
         " already, and can be in no more (KOLO_GROUPS); drop those that are not used any more";
}

std::string hopeless(const std::string& subject, bool is_group, const Leavers& departed) {
  const std::vector<std::int32_t>& followers = departed.followers;
  return has_departed(departed) + (followers.empty() ? " and" : "; " + core::describe_ranks(followers)) +
         (is_group ? " will not ask for " : " will not submit ") + subject + ".";
}

std::string nothing_more(const Leavers& departed) {
  return has_departed(departed) + "; no later operation can complete.";
}

std::string absent_root(const std::string& subject, core::CollectiveKind kind, std::int32_t root) {
  return subject + ": the " + std::string(core::to_string(kind)) + " cannot run, because its root, rank " +
         std::to_string(root) + ", has joined; give a root that has not joined.";
}

std::string needs_all(const std::string& subject, core::CollectiveKind kind, const std::vector<std::int32_t>& absent) {
  return cannot_run(subject, kind, absent) + ", and every rank would have to " +
         (core::traits_of(kind).rooted ? "receive" : "send and to receive") +
         "; call it before any rank joins, or after the join.";
}

std::string scaled_product(const std::string& subject, core::CollectiveKind kind,
                           const std::vector<std::int32_t>& absent) {
  return cannot_run(subject, kind, absent) +
         ", and nothing can stand for a rank in a product with prescale; scale the inputs before the call.";
}

std::string absent_member(const std::string& subject, const std::vector<std::int32_t>& absent) {
  return subject + " cannot be made, because " + has_joined(absent) +
         "; make it before any rank joins, or after the join.";
}

std::string endless(const std::string& join, const Leavers& departed) {
  return has_departed(departed) + ", so " + join + " cannot end.";
}

std::string rank_lost(const RankLost& lost, std::int32_t because) {
  const std::string rank = "rank " + std::to_string(lost.rank);
  std::string text = because_of(because);
  switch (lost.code) {
  case ErrorCode::timeout:  // of a wait, whose sentence names the ranks for which it waited
    return lost.reason + "." + kUndefined;
  case ErrorCode::user_exception:
    text += rank + " left the job because of an exception";
    break;
  case ErrorCode::rank_lost:
    text += rank + " was lost";
    break;
  default:
    text += rank + " failed";
    break;
  }
  if (!lost.reason.empty()) text += ": " + lost.reason;
  return text + "." + kUndefined;
}

}  // namespace kolo::control
