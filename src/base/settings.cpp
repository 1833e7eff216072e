// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <kolo/detail/names.hpp>
#include <kolo/error.hpp>

#include "base/settings_table.hpp"

namespace kolo::base {
namespace {

/// `name` is the row's name or alias: the variable that the user has to correct.
void set_or_throw(const SettingRow& row, Settings& settings, std::string_view name, const std::string& text,
                  SettingSource source) {
  if (!set_from_text(row, settings, text)) {
    throw Error(ErrorCode::invalid_setting, std::string(name) + " is \"" + text + "\" (" +
                                                std::string(to_string(source)) + "); expected " + expected_text(row));
  }
  settings.sources[std::string(row.name)] = source;
}

std::string source_text(const SettingRow& row, const Settings& settings) {
  const auto found = settings.sources.find(row.name);
  const SettingSource source = found == settings.sources.end() ? SettingSource::default_value : found->second;
  return std::string(source == SettingSource::alias ? row.alias : to_string(source));
}

[[noreturn]] void throw_foreign(const std::string& what) {
  throw Error(ErrorCode::invalid_setting, "rank 0 sent settings that this rank does not understand (" + what +
                                              "); all ranks must run the same release of Kolo");
}

}  // namespace

std::string_view to_string(SettingSource source) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"default", "alias", "environment", "option", "rank 0"};
  return kolo::detail::name_of(kNames, source);
}

std::optional<std::string> look_up(const Lookup& lookup, std::string_view name) {
  if (name.empty()) return std::nullopt;
  auto value = lookup(std::string(name).c_str());
  if (value && value->empty()) value.reset();
  return value;
}

Settings load_settings(const Lookup& lookup, const std::map<std::string, std::string>& overrides) {
  for (const auto& [name, value] : overrides) {
    if (find_setting(name) != nullptr) continue;
    throw Error(ErrorCode::invalid_setting,
                name + " (option) is not a setting; did you mean " + std::string(nearest_setting(name).name) + "?");
  }
  Settings settings;
  for (const SettingRow& row : settings_table()) {
    if (const auto option = overrides.find(std::string(row.name)); option != overrides.end()) {
      set_or_throw(row, settings, row.name, option->second, SettingSource::option);
    } else if (const auto own = look_up(lookup, row.name)) {
      set_or_throw(row, settings, row.name, *own, SettingSource::environment);
    } else if (const auto horovods = look_up(lookup, row.alias)) {
      set_or_throw(row, settings, row.alias, *horovods, SettingSource::alias);
    }
  }
  return settings;
}

namespace {

/// Variables that scripts/with hosts sets for the command that it runs.
bool is_scripts_own(std::string_view name) { return name == "KOLO_HOSTS" || name == "KOLO_MPIRUN"; }

bool is_alias(std::string_view name) {
  const Span<const SettingRow> rows = settings_table();
  return std::any_of(rows.begin(), rows.end(), [&](const SettingRow& row) { return row.alias == name; });
}

}  // namespace

std::vector<std::string> unknown_variables(const std::vector<std::string>& names) {
  std::vector<std::string> sentences;
  std::string of_horovod;
  for (const std::string& name : names) {
    if (name.rfind("HOROVOD_", 0) == 0 && !is_alias(name)) of_horovod += (of_horovod.empty() ? "" : ", ") + name;
    if (name.rfind("KOLO_", 0) != 0 || find_setting(name) != nullptr || is_scripts_own(name)) continue;
    sentences.push_back(name + " is set, but is no variable of Kolo's; did you mean " +
                        std::string(nearest_setting(name).name) + "?");
  }
  if (!of_horovod.empty()) {
    sentences.push_back("these variables of Horovod's are set, but Kolo does not read them: " + of_horovod +
                        "; docs/variables.md lists those that it reads");
  }
  return sentences;
}

std::vector<Setting> report(const Settings& settings) {
  const Settings defaults;
  std::vector<Setting> reports;
  for (const SettingRow& row : settings_table()) {
    reports.push_back({std::string(row.name), value_text(row, settings), value_text(row, defaults),
                       source_text(row, settings), range_text(row), std::string(row.help)});
  }
  return reports;
}

std::string encode_shared(const Settings& settings) {
  std::string lines;
  for (const SettingRow& row : settings_table()) {
    if (row.shared) lines += std::string(row.name) + '=' + value_text(row, settings) + '\n';
  }
  return lines;
}

std::vector<DifferingSetting> adopt_shared(Settings& settings, std::string_view encoded) {
  Settings adopted = settings;
  std::vector<DifferingSetting> differing;
  for (const SettingRow& row : settings_table()) {
    if (!row.shared) continue;
    // Both sides list the shared rows in the table's order; a different list comes from another table.
    const std::string key = std::string(row.name) + '=';
    const std::size_t newline = encoded.find('\n');
    if (encoded.rfind(key, 0) != 0 || newline == std::string_view::npos) throw_foreign("no " + std::string(row.name));
    const std::string value(encoded.substr(key.size(), newline - key.size()));
    encoded.remove_prefix(newline + 1);
    if (value == value_text(row, settings)) continue;
    if (!set_from_text(row, adopted, value)) throw_foreign(key + value);
    adopted.sources[std::string(row.name)] = SettingSource::rank0;
    differing.push_back({std::string(row.name), value_text(row, settings), value});
  }
  if (!encoded.empty()) throw_foreign("more than there are here");
  settings = std::move(adopted);
  return differing;
}

namespace {

constexpr std::string_view kPreface = R"(# Variables

Kolo reads these variables when `init` runs (or a `Context` is made). A value comes from, strongest first: the program's
options, the environment, Horovod's name for it in the environment, the default. An empty value counts as not set.
A value that does not parse or lies outside its range ends `init` with an error; a `KOLO_` or `HOROVOD_` variable that
is not listed here is a warning.

Settings marked *shared* shape what all ranks do together: rank 0's value holds everywhere, and a rank whose own value
differs says so in a warning. `mpirun` hands variables to other hosts only when told to (`-x KOLO_TIMEOUT_S`).

A program that has other rights than its caller (set-user-ID, set-group-ID, capabilities) does not read variables of
type *file*, nor `TMPDIR` and `XDG_RUNTIME_DIR`, and says so; a `KOLO_STORE` that is a file is an error there. (UCX, MPI
and CUDA read variables of their own.)

Sizes take the binary suffixes K, M, G and T (`64K` is 65536); booleans are `true` or `false`, `1` or `0`, `yes` or
`no`, `on` or `off`.

This page is generated from the table in `src/base/settings_table.cpp`; a test compares the two.

| variable | type | default | range | shared | Horovod's name |
|---|---|---|---|---|---|
)";

std::string code(std::string_view text) { return text.empty() ? std::string() : '`' + std::string(text) + '`'; }

std::string table_line(const SettingRow& row) {
  std::string line =
      "| [" + code(row.name) + "](#" + std::string(row.name) + ") | " + std::string(type_text(row)) + " | ";
  line += code(value_text(row, {})) + " | " + range_text(row) + " | " + (row.shared ? "shared" : "") + " | ";
  return line + code(row.alias) + " |\n";
}

}  // namespace

std::string settings_markdown() {
  std::string page(kPreface);
  std::string meanings;
  for (const SettingRow& row : settings_table()) {
    page += table_line(row);
    const std::string name(row.name);
    meanings += "\n<a id=\"" + name + "\"></a>**" + code(name) + "**: " + std::string(row.help) + '\n';
  }
  return page + meanings;
}

}  // namespace kolo::base
