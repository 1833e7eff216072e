// SPDX-License-Identifier: Apache-2.0
#include "base/replica_setting.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace kolo::base {
namespace {

constexpr std::int64_t kLongestInterval = 1'000'000'000;

bool matches(std::string_view name, std::string_view pattern) noexcept {
  std::size_t at = 0;
  std::size_t in_pattern = 0;
  std::size_t star = std::string_view::npos;  // the last that was met, and where in the name its run ends
  std::size_t run_end = 0;
  while (at < name.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      star = in_pattern++;
      run_end = at;
    } else if (in_pattern < pattern.size() && pattern[in_pattern] == name[at]) {
      ++in_pattern;
      ++at;
    } else if (star != std::string_view::npos) {
      in_pattern = star + 1;
      at = ++run_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', in_pattern) == std::string_view::npos;
}

bool has_control_characters(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

/// Takes the text up to the next comma.
std::string_view take_word(std::string_view& text) noexcept {
  const std::string_view word = text.substr(0, text.find(','));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

}  // namespace

bool ReplicaSetting::compares(std::string_view name) const noexcept {
  return std::none_of(left_out.begin(), left_out.end(),
                      [name](const std::string& pattern) { return matches(name, pattern); });
}

std::optional<ReplicaSetting> parse_replica_setting(std::string_view text) {
  if (text == "off" || text == "0") return ReplicaSetting{-1, {}};
  if (text.empty() || text.back() == ',' || has_control_characters(text)) return std::nullopt;
  ReplicaSetting setting;
  while (!text.empty()) {
    const std::string_view word = take_word(text);
    if (word.size() > 1 && word.front() == '-') {
      setting.left_out.emplace_back(word.substr(1));
    } else if (word != "first") {
      const std::optional<std::int64_t> number = parse_number<std::int64_t>(word);
      if (!number || *number < 1 || *number > kLongestInterval || setting.interval != 0) return std::nullopt;
      setting.interval = *number;
    }
  }
  return setting;
}

std::string to_string(const ReplicaSetting& setting) {
  if (setting.interval < 0) return "off";
  std::string text = setting.interval == 0 ? "first" : std::to_string(setting.interval);
  for (const std::string& pattern : setting.left_out) text += ",-" + pattern;
  return text;
}

}  // namespace kolo::base
