// SPDX-License-Identifier: Apache-2.0
//
// The only file that reads or changes the environment.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <sys/auxv.h>
#include <unistd.h>

#include <kolo/error.hpp>

#include "base/mutex.hpp"
#include "base/quote.hpp"
#include "base/settings.hpp"
#include "base/settings_table.hpp"

namespace kolo::base {
namespace {

/// All of Kolo's own uses hold it, because the system's functions do not lock.
Mutex& environment_mutex() {
  static Mutex& mutex = *new Mutex;  // never destroyed: threads may outlive main
  return mutex;
}

/// Replaces the environment by a copy with this variable, and returns the old one, which stays intact: other threads
/// may be reading it (getenv), and setenv would move it. Neither is freed, because the end of such reads is unknown.
/// The caller holds the lock.
char** exchange_environment(const char* name, const char* value) {
  static std::vector<void*>& kept = *new std::vector<void*>;  // keeps leak checkers quiet
  const std::string head = std::string(name) + "=";
  std::size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  auto** const changed = new char*[count + 2];
  char** next = changed;
  for (std::size_t i = 0; i < count; ++i)
    if (std::strncmp(environ[i], head.c_str(), head.size()) != 0) *next++ = environ[i];
  char* const text = ::strdup((head + value).c_str());
  *next++ = text;
  *next = nullptr;
  kept.insert(kept.end(), {changed, text});
  __atomic_store_n(&environ, changed, __ATOMIC_RELEASE);
  return changed;
}

}  // namespace

Lookup process_environment() {
  const auto lookup = [](const char* name) -> std::optional<std::string> {
    const MutexLock lock(environment_mutex());
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see the header
    if (value == nullptr) return std::nullopt;
    return value;
  };
  return is_privileged() ? without_files(lookup) : lookup;
}

ScopedVariable::ScopedVariable(const char* name, const char* value) : name_(name) {
  const MutexLock lock(environment_mutex());
  if (std::getenv(name) != nullptr) return;  // NOLINT(concurrency-mt-unsafe): see the header
  before_ = environ;
  ours_ = exchange_environment(name, value);
}

ScopedVariable::~ScopedVariable() {
  const MutexLock lock(environment_mutex());
  if (ours_ == nullptr) return;
  if (environ == ours_) {
    __atomic_store_n(&environ, before_, __ATOMIC_RELEASE);
  } else {
    ::unsetenv(name_);  // NOLINT(concurrency-mt-unsafe): somebody else has changed it meanwhile
  }
}

void set_variable(const char* name, const char* value) {
  const MutexLock lock(environment_mutex());
  exchange_environment(name, value);
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  const MutexLock lock(environment_mutex());
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (changes.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    std::string& text = all.emplace_back(name);
    text += '=';
    text += value;
  }
  return all;
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names = environment_with({});
  for (std::string& name : names) name.resize(std::min(name.find('='), name.size()));
  return names;
}

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
