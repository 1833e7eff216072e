// SPDX-License-Identifier: Apache-2.0
#include "negotiation/sentences.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

namespace kolo::negotiation {
namespace {

constexpr const char* kUndefined = " The contents of the buffers in flight are undefined.";

std::string spell_seconds(double seconds) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.4g s", seconds);
  return text.data();
}

/// The difference to name: the first, in the order of aspects, that any opinion has from the first one.
core::Difference main_difference(const std::vector<Opinion>& opinions) {
  std::optional<core::Difference> main;
  for (const Opinion& other : opinions) {
    const auto difference = core::first_difference(opinions.front().signature, other.signature);
    if (difference && (!main || *difference < *main)) main = difference;
  }
  return main.value_or(core::Difference{});
}

std::string has_left(const std::vector<std::int32_t>& ranks) {
  return core::describe_ranks(ranks) + (ranks.size() == 1 ? " has" : " have") + " shut down";
}

}  // namespace

std::string subject(core::SetId set, const std::string& name, core::Round round) {
  std::string text = name.empty() ? "unnamed call number " + std::to_string(round) : "tensor \"" + name + "\"";
  if (set != core::kGlobalSet) text += " of process set " + std::to_string(set);
  return text;
}

std::string disagreement(const std::string& subject, const std::vector<Opinion>& opinions) {
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

  std::string text = subject;
  if (difference.aspect != core::Aspect::kind) {
    text += " of " + std::string(core::to_string(opinions.front().signature.kind));
  }
  text += ": ranks disagree about " + core::describe(difference) + ": ";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    text += (i == 0 ? "" : "; ") + groups[i].first + " on " + core::describe_ranks(groups[i].second);
  }
  return text + ". Nothing was reduced; submit the same everywhere.";
}

std::string deadline_passed(const std::string& subject, const Wait& wait) {
  std::string text = subject + " has not completed within " + spell_seconds(wait.waited_s) + ": ";
  if (wait.missing.empty() && wait.silent_nodes == 0) {
    text += "every rank has submitted it";
  } else if (!wait.missing.empty()) {
    text += core::describe_ranks(wait.missing) + (wait.missing.size() == 1 ? " has" : " have") + " not submitted it";
    if (!wait.left.empty()) text += " (" + has_left(wait.left) + ")";
  }
  if (wait.silent_nodes > 0) {
    if (!wait.missing.empty()) text += "; ";
    text += std::to_string(wait.silent_nodes) + (wait.silent_nodes == 1 ? " node" : " nodes") + " did not answer";
  }
  return text + "." + kUndefined;
}

std::string hopeless(const std::string& subject, const std::vector<std::int32_t>& left) {
  return has_left(left) + " and will not submit " + subject + ".";
}

std::string rank_lost(const core::RankLost& lost) {
  std::string text = "rank " + std::to_string(lost.rank) + " was lost";
  if (lost.code == ErrorCode::user_exception) text = "rank " + std::to_string(lost.rank) + " left by an exception";
  if (!lost.reason.empty()) text += ": " + lost.reason;
  return text + "." + kUndefined;
}

}  // namespace kolo::negotiation
