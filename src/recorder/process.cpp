// SPDX-License-Identifier: Apache-2.0
#include "recorder/process.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "base/text.hpp"

namespace kolo::recorder {
namespace {

struct Stat {
  char state = 0;
  std::uint64_t start = 0;
};

/// Nothing: there is no such process.
std::optional<Stat> stat_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text, '\0');                // leaves it empty where the process ends meanwhile, and throws nothing
  const std::size_t name_end = text.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = base::words(text.substr(name_end + 1));
  constexpr std::size_t kStart = 19;  // field 22; the state is field 3
  if (fields.size() <= kStart || fields[0].empty()) return std::nullopt;
  return Stat{fields[0][0], base::parse_number<std::uint64_t>(fields[kStart]).value_or(0)};
}

}  // namespace

Process Process::self() {
  Process process;
  process.pid = static_cast<std::uint64_t>(::getpid());
  if (const auto stat = stat_of("self")) process.start = stat->start;
  return process;
}

char Process::state() const {
  const auto stat = stat_of(std::to_string(pid));
  if (!stat || (start != 0 && stat->start != start)) return 0;
  return stat->state;
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string host_name() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  name.resize(::strnlen(name.data(), name.size()));
  return name;
}

}  // namespace kolo::recorder
