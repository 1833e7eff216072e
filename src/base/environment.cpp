// SPDX-License-Identifier: Apache-2.0
//
// The only file that reads the environment.
#include <cstdlib>

#include <unistd.h>

#include "base/settings.hpp"

namespace kolo::base {

Lookup process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): see the header
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace kolo::base
