// SPDX-License-Identifier: Apache-2.0
#include "base/privileged.hpp"

#include <sys/auxv.h>

#include <string_view>
#include <utility>

#include <kolo/error.hpp>

#include "base/quote.hpp"
#include "base/settings_table.hpp"

namespace kolo::base {
namespace {

/// Of a privileged process.
bool is_ignored(std::string_view name) { return names_file(name) || name == "XDG_RUNTIME_DIR" || name == "TMPDIR"; }

}  // namespace

bool is_privileged() noexcept { return ::getauxval(AT_SECURE) != 0; }

Lookup without_files(Lookup lookup) {
  return [lookup = std::move(lookup)](const char* name) -> std::optional<std::string> {
    if (is_ignored(name)) return std::nullopt;
    std::optional<std::string> value = lookup(name);
    if (value && std::string_view(name) == "KOLO_STORE" && value->rfind("file:", 0) == 0) {
      throw Error(ErrorCode::invalid_setting,
                  "KOLO_STORE is " + base::quoted(*value) +
                      ", but this program has other rights than its caller, who has chosen that file: expected "
                      "tcp://host:port, or a place that the program chooses (Options::with_store)");
    }
    return value;
  };
}

std::string ignored_variables(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (is_ignored(name)) list += (list.empty() ? "" : ", ") + name;
  }
  if (list.empty()) return list;
  return "this program has other rights than its caller (set-user-ID, set-group-ID or capabilities), and so does not "
         "write to files that the environment names; not read: " +
         list;
}

}  // namespace kolo::base
