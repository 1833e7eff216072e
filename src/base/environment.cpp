// SPDX-License-Identifier: Apache-2.0
//
// The only file that reads or changes the environment.
#include <cerrno>
#include <cstdlib>

#include <unistd.h>

#include "base/mutex.hpp"
#include "base/settings.hpp"
#include "base/system_error.hpp"

namespace kolo::base {
namespace {

/// Held by all of Kolo's own uses: the system's calls do not lock anything.
Mutex& environment_mutex() {
  static Mutex& mutex = *new Mutex;  // never destroyed: threads may outlive main
  return mutex;
}

}  // namespace

Lookup process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const MutexLock lock(environment_mutex());
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see the header
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

ScopedVariable::ScopedVariable(const char* name, const char* value)
    : name_(name), is_ours_(!process_environment()(name)) {
  const MutexLock lock(environment_mutex());
  if (is_ours_ && ::setenv(name, value, 0) != 0) throw_errno("setenv", errno);  // NOLINT(concurrency-mt-unsafe)
}

ScopedVariable::~ScopedVariable() {
  const MutexLock lock(environment_mutex());
  if (is_ours_) ::unsetenv(name_);  // NOLINT(concurrency-mt-unsafe)
}

void set_variable(const char* name, const char* value) {
  const MutexLock lock(environment_mutex());
  if (::setenv(name, value, 1) != 0) throw_errno("setenv", errno);  // NOLINT(concurrency-mt-unsafe): see the header
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
  const MutexLock lock(environment_mutex());
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace kolo::base
