// SPDX-License-Identifier: Apache-2.0
//
// The rows behind settings.hpp, and how values are spelled. Only the settings files include it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <kolo/types.hpp>

#include "base/settings.hpp"

namespace kolo::base {

enum class SettingType : std::uint8_t {
  seconds,
  bytes,
  integer,
  boolean,
  text,
  file,  ///< the name of one that is written; or of a folder
  secret,
  log_level,
  gpu_backend,
  transport,
  replicas
};

/// The member of Settings that has the value. Its type corresponds to SettingType: int64 is bytes or an integer.
using SettingField =
    std::variant<double Settings::*, std::int64_t Settings::*, bool Settings::*, std::string Settings::*,
                 LogLevel Settings::*, GpuBackend Settings::*, Transport Settings::*, ReplicaSetting Settings::*>;

struct SettingRow {
  std::string_view name;
  SettingField field;
  SettingType type;
  double least;  ///< for seconds, bytes and integers, which a double holds exactly
  double most;
  bool shared;
  std::string_view alias;  ///< Horovod's name, or empty
  std::string_view help;
};

/// All rows, in the order in which they are shown.
Span<const SettingRow> settings_table();
/// The row of this name, or null.
const SettingRow* find_setting(std::string_view name);
/// The row whose name differs in the fewest letters.
const SettingRow& nearest_setting(std::string_view name);

/// Whether the variable, or Horovod's name for it, names a file.
bool names_file(std::string_view variable);

/// "seconds", "bytes", "integer", ...
std::string_view type_text(const SettingRow& row);
/// "2 .. 64", "true, false", ...; empty for text.
std::string range_text(const SettingRow& row);
/// "an integer in the range 2 .. 64": what an error about a wrong value says.
std::string expected_text(const SettingRow& row);
/// The row's value as the variable would spell it.
std::string value_text(const SettingRow& row, const Settings& settings);
/// Sets the row's value. False, and nothing is changed, if the text is no such value or out of range.
bool set_from_text(const SettingRow& row, Settings& settings, std::string_view text);

}  // namespace kolo::base
