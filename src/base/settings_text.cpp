// SPDX-License-Identifier: Apache-2.0
//
// Settings as text: how a value of each type is written and read.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <kolo/detail/names.hpp>

#include "base/check.hpp"
#include "base/settings_table.hpp"
#include "base/text.hpp"

namespace kolo::base {
namespace {

std::optional<bool> parse_boolean(std::string_view text) {
  const std::string word = in_lower_case(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word == "0" || word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::string number_text(double number) {
  std::array<char, 400> text{};  // the longest double without an exponent takes 325
  const auto result = std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  KOLO_CHECK(result.ec == std::errc()) << "no room for a number";
  return {text.data(), result.ptr};
}

constexpr std::array<std::string_view, 2> kGpuBackends{"nccl", "staged"};
constexpr std::array<std::string_view, 3> kTransports{"auto", "ucx", "mpi"};

/// The words by which pages and errors describe a type of setting.
struct TypeWords {
  std::string_view name;
  std::string_view values;    ///< of a type whose settings all have the same range
  std::string_view expected;  ///< in an error; the range follows where it ends with a blank
};

// By SettingType.
constexpr std::array<TypeWords, 11> kTypes{{
    {"seconds", "", "seconds in the range "},
    {"bytes", "", "bytes, such as 65536 or 64K, in the range "},
    {"integer", "", "an integer in the range "},
    {"boolean", "true, false", "true or false (also 1 or 0, yes or no, on or off)"},
    {"text", "", "text"},
    {"file", "", "text"},
    {"text", "", "text"},
    {"one of", "trace, debug, info, warning, error, off", "one of "},
    {"one of", "nccl, staged", "one of "},
    {"one of", "auto, ucx, mpi", "one of "},
    {"words", "off, first, 1 .. 1000000000, -PATTERN",
     "words with commas between them: off; or first or a number of steps, from 1 to 1000000000, and -PATTERN for names "
     "to leave out"},
}};
static_assert(kTypes.size() == static_cast<std::size_t>(SettingType::replicas) + 1);

const TypeWords& words_of(const SettingRow& row) { return kTypes[static_cast<std::size_t>(row.type)]; }

// ---------------------------------------------------------------- a value of each type, as text

std::string spelled(const SettingRow& /*row*/, double value) { return number_text(value); }
std::string spelled(const SettingRow& /*row*/, bool value) { return value ? "true" : "false"; }
std::string spelled(const SettingRow& row, std::int64_t value) {
  return row.type == SettingType::bytes ? bytes_text(value) : std::to_string(value);
}
std::string spelled(const SettingRow& row, const std::string& value) {
  return row.type == SettingType::secret && !value.empty() ? "(not shown)" : value;
}
template <class Named>
std::string spelled(const SettingRow& /*row*/, const Named& value) {
  return std::string(to_string(value));
}

template <class Value>
bool take(const std::optional<Value>& found, Value& value) {
  if (found) value = *found;
  return found.has_value();
}
template <class Number>
bool take_in_range(const SettingRow& row, const std::optional<Number>& found, Number& value) {
  // The comparison is false for NaN, too.
  const bool fits = found && static_cast<double>(*found) >= row.least && static_cast<double>(*found) <= row.most;
  return fits && take(found, value);
}
bool read(const SettingRow& row, std::string_view text, double& value) {
  return take_in_range(row, parse_number<double>(text), value);
}
bool read(const SettingRow& row, std::string_view text, std::int64_t& value) {
  return take_in_range(row, row.type == SettingType::bytes ? parse_bytes(text) : parse_number<std::int64_t>(text),
                       value);
}
bool read(const SettingRow& /*row*/, std::string_view text, bool& value) { return take(parse_boolean(text), value); }
bool read(const SettingRow& /*row*/, std::string_view text, std::string& value) {
  value = text;
  return true;
}
bool read(const SettingRow& /*row*/, std::string_view text, LogLevel& value) {
  return take(parse_log_level(in_lower_case(text)), value);
}
bool read(const SettingRow& /*row*/, std::string_view text, GpuBackend& value) {
  return take(kolo::detail::value_of<GpuBackend>(kGpuBackends, in_lower_case(text)), value);
}
bool read(const SettingRow& /*row*/, std::string_view text, Transport& value) {
  return take(kolo::detail::value_of<Transport>(kTransports, in_lower_case(text)), value);
}
bool read(const SettingRow& /*row*/, std::string_view text, ReplicaSetting& value) {
  return take(parse_replica_setting(text), value);
}

}  // namespace

std::string_view to_string(GpuBackend backend) noexcept { return kolo::detail::name_of(kGpuBackends, backend); }
std::string_view to_string(Transport transport) noexcept { return kolo::detail::name_of(kTransports, transport); }

std::string_view type_text(const SettingRow& row) { return words_of(row).name; }

std::string range_text(const SettingRow& row) {
  const auto between = [&](auto least, auto most) { return spelled(row, least) + " .. " + spelled(row, most); };
  if (std::holds_alternative<double Settings::*>(row.field)) return between(row.least, row.most);
  if (std::holds_alternative<std::int64_t Settings::*>(row.field)) {
    return between(static_cast<std::int64_t>(row.least), static_cast<std::int64_t>(row.most));
  }
  return std::string(words_of(row).values);
}

std::string expected_text(const SettingRow& row) {
  const std::string_view expected = words_of(row).expected;
  return std::string(expected) + (expected.back() == ' ' ? range_text(row) : "");
}

std::string value_text(const SettingRow& row, const Settings& settings) {
  return std::visit([&](auto field) { return spelled(row, settings.*field); }, row.field);
}

bool set_from_text(const SettingRow& row, Settings& settings, std::string_view text) {
  return std::visit([&](auto field) { return read(row, text, settings.*field); }, row.field);
}

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
