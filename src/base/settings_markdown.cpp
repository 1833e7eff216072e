// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

namespace kolo::base {
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

std::string code(const std::string& text) { return text.empty() ? text : '`' + text + '`'; }

std::string table_line(const SettingReport& setting) {
  std::string line = "| [" + code(setting.name) + "](#" + setting.name + ") | " + setting.type + " | ";
  line += code(setting.default_value) + " | " + setting.range + " | " + (setting.shared ? "shared" : "") + " | ";
  return line + code(setting.alias) + " |\n";
}

}  // namespace

std::string settings_markdown() {
  std::string page(kPreface);
  std::string meanings;
  for (const SettingReport& setting : report(Settings{})) {
    page += table_line(setting);
    meanings += "\n<a id=\"" + setting.name + "\"></a>**" + code(setting.name) + "**: " + setting.help + '\n';
  }
  return page + meanings;
}

}  // namespace kolo::base
