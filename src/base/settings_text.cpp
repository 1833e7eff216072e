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

constexpr std::array kGpuBackends{GpuBackend::nccl, GpuBackend::staged};
constexpr std::array kTransports{Transport::automatic, Transport::ucx, Transport::mpi};

template <class Choices>
auto parse_choice(const Choices& choices, std::string_view text) -> std::optional<typename Choices::value_type> {
  for (const auto choice : choices) {
    if (text == to_string(choice)) return choice;
  }
  return std::nullopt;
}

template <class Choices>
std::string list_choices(const Choices& choices) {
  std::string list;
  for (const auto choice : choices) list += (list.empty() ? "" : ", ") + std::string(to_string(choice));
  return list;
}

template <class Number>
bool set_number(const SettingRow& row, Settings& settings, std::optional<Number> number) {
  // The comparison is false for NaN, too.
  if (!number || !(static_cast<double>(*number) >= row.least && static_cast<double>(*number) <= row.most)) return false;
  settings.*std::get<Number Settings::*>(row.field) = *number;
  return true;
}

template <class Value>
bool set_value(const SettingRow& row, Settings& settings, const std::optional<Value>& value) {
  if (value) settings.*std::get<Value Settings::*>(row.field) = *value;
  return value.has_value();
}

}  // namespace

std::string_view to_string(GpuBackend backend) noexcept { return backend == GpuBackend::nccl ? "nccl" : "staged"; }

std::string_view to_string(Transport transport) noexcept {
  constexpr std::array<std::string_view, 3> kNames{"auto", "ucx", "mpi"};
  return kolo::detail::name_of(kNames, transport);
}

std::string_view type_text(SettingType type) {
  switch (type) {
  case SettingType::seconds:
    return "seconds";
  case SettingType::bytes:
    return "bytes";
  case SettingType::integer:
    return "integer";
  case SettingType::boolean:
    return "boolean";
  case SettingType::text:
  case SettingType::secret:
    return "text";
  case SettingType::replicas:
    return "words";
  case SettingType::file:
    return "file";
  case SettingType::log_level:
  case SettingType::gpu_backend:
  case SettingType::transport:
    return "one of";
  }
  KOLO_UNREACHABLE();
}

std::string range_text(const SettingRow& row) {
  switch (row.type) {
  case SettingType::seconds:
  case SettingType::integer:
    return number_text(row.least) + " .. " + number_text(row.most);
  case SettingType::bytes:
    return bytes_text(static_cast<std::int64_t>(row.least)) + " .. " + bytes_text(static_cast<std::int64_t>(row.most));
  case SettingType::boolean:
    return "true, false";
  case SettingType::replicas:
    return "off, first, 1 .. 1000000000, -PATTERN";
  case SettingType::text:
  case SettingType::file:
  case SettingType::secret:
    return "";
  case SettingType::log_level: {
    std::string levels;
    for (LogLevel level = LogLevel::trace; level < LogLevel::off;
         level = static_cast<LogLevel>(static_cast<int>(level) + 1)) {
      levels += std::string(to_string(level)) + ", ";
    }
    return levels + std::string(to_string(LogLevel::off));
  }
  case SettingType::gpu_backend:
    return list_choices(kGpuBackends);
  case SettingType::transport:
    return list_choices(kTransports);
  }
  KOLO_UNREACHABLE();
}

std::string value_text(const SettingRow& row, const Settings& settings) {
  switch (row.type) {
  case SettingType::seconds:
    return number_text(settings.*std::get<double Settings::*>(row.field));
  case SettingType::bytes:
    return bytes_text(settings.*std::get<std::int64_t Settings::*>(row.field));
  case SettingType::integer:
    return std::to_string(settings.*std::get<std::int64_t Settings::*>(row.field));
  case SettingType::boolean:
    return settings.*std::get<bool Settings::*>(row.field) ? "true" : "false";
  case SettingType::text:
  case SettingType::file:
    return settings.*std::get<std::string Settings::*>(row.field);
  case SettingType::secret:
    return (settings.*std::get<std::string Settings::*>(row.field)).empty() ? "" : "(not shown)";
  case SettingType::replicas:
    return to_string(settings.*std::get<ReplicaSetting Settings::*>(row.field));
  case SettingType::log_level:
    return std::string(to_string(settings.*std::get<LogLevel Settings::*>(row.field)));
  case SettingType::gpu_backend:
    return std::string(to_string(settings.*std::get<GpuBackend Settings::*>(row.field)));
  case SettingType::transport:
    return std::string(to_string(settings.*std::get<Transport Settings::*>(row.field)));
  }
  KOLO_UNREACHABLE();
}

bool set_from_text(const SettingRow& row, Settings& settings, std::string_view text) {
  switch (row.type) {
  case SettingType::seconds:
    return set_number(row, settings, parse_number<double>(text));
  case SettingType::bytes:
    return set_number(row, settings, parse_bytes(text));
  case SettingType::integer:
    return set_number(row, settings, parse_number<std::int64_t>(text));
  case SettingType::boolean:
    return set_value(row, settings, parse_boolean(text));
  case SettingType::text:
  case SettingType::file:
  case SettingType::secret:
    return set_value(row, settings, std::optional(std::string(text)));
  case SettingType::replicas:
    return set_value(row, settings, parse_replica_setting(text));
  case SettingType::log_level:
    return set_value(row, settings, parse_log_level(in_lower_case(text)));
  case SettingType::gpu_backend:
    return set_value(row, settings, parse_choice(kGpuBackends, in_lower_case(text)));
  case SettingType::transport:
    return set_value(row, settings, parse_choice(kTransports, in_lower_case(text)));
  }
  KOLO_UNREACHABLE();
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
