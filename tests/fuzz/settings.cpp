// SPDX-License-Identifier: Apache-2.0
//
// KOLO_* variables, options of a program, and what rank 0 sends of its settings.
#include "fuzz.hpp"

#include <algorithm>
#include <map>

#include <kolo/error.hpp>

#include "base/settings.hpp"

namespace kolo::fuzz {
namespace {

using Values = std::map<std::string, std::string>;

/// Each name that is none is compared with all that there are, letter by letter: a few of them say as much as many.
constexpr std::size_t kMostValues = 4;
constexpr std::size_t kLongestName = 60;

Values values_of(std::string_view text) {
  Values values;
  while (!text.empty() && values.size() < kMostValues) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = std::min(line.find('='), line.size());
    values[std::string(line.substr(0, std::min(equals, kLongestName)))] =
        line.substr(std::min(equals + 1, line.size()));
  }
  return values;
}

base::Settings load(const Values& variables, const Values& options) {
  return base::load_settings(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      options);
}

/// What is reported is a value that the variable may have.
void read(const Values& variables, const Values& options) {
  try {
    const base::Settings settings = load(variables, options);
    Values again;
    for (const Setting& one : base::report(settings)) {
      if (one.name != "KOLO_JOB_KEY") again[one.name] = one.value;
    }
    KOLO_CHECK(encode_shared(load(again, {})) == encode_shared(settings));
    base::Settings elsewhere;
    base::adopt_shared(elsewhere, encode_shared(settings));
    KOLO_CHECK(encode_shared(elsewhere) == encode_shared(settings));
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting);
  }
}

void adopt(std::string_view encoded) {
  base::Settings settings;
  const std::string before = encode_shared(settings);
  try {
    base::adopt_shared(settings, encoded);
  } catch (const Error& error) {
    KOLO_CHECK(error.code() == ErrorCode::invalid_setting);
    KOLO_CHECK(encode_shared(settings) == before) << "half of it was adopted";
  }
}

}  // namespace

/// The first byte says where the rest comes from.
void run(std::string_view input) {
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  if (input.front() == 'r') return adopt(rest);
  const Values values = values_of(rest);
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  KOLO_CHECK(base::unknown_variables(names).size() <= names.size() + 1);
  input.front() == 'o' ? read({}, values) : read(values, {});
}

/// Each variable with its default, its range's end, and something else.
std::vector<std::string> seeds() {
  std::vector<std::string> all = {'r' + base::encode_shared({}), "eHOROVOD_FUSION_THRESHOLD=64M\nKOLO_TIMEOUTS=3\n"};
  for (const Setting& one : base::report({})) {
    all.push_back('e' + one.name + "=" + one.default_value + "\n");
    all.push_back('o' + one.name + "=" + one.range.substr(one.range.rfind(' ') + 1) + "\n");
  }
  return all;
}

}  // namespace kolo::fuzz
