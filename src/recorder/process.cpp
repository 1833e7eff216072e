// SPDX-License-Identifier: Apache-2.0
#include "recorder/process.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/cpu.hpp"
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

/// 0 where /proc is that of another namespace: what it says of a process there is said of another one.
std::uint64_t own_namespace() {
  std::array<char, 32> self{};
  const ssize_t length = ::readlink("/proc/self", self.data(), self.size());
  if (length <= 0 || std::string_view(self.data(), static_cast<std::size_t>(length)) != std::to_string(::getpid())) {
    return 0;
  }
  struct stat about {};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

}  // namespace

Process Process::self() {
  Process process;
  process.pid = static_cast<std::uint64_t>(::getpid());
  if (const auto stat = stat_of("self")) process.start = stat->start;
  process.pid_namespace = own_namespace();
  return process;
}

bool Process::is_in_sight(const std::string& its_boot) const {
  return pid_namespace != 0 && pid_namespace == own_namespace() && its_boot == base::system_name();
}

char Process::state() const {
  const auto stat = stat_of(std::to_string(pid));
  if (!stat || (start != 0 && stat->start != start)) return 0;
  return stat->state;
}

}  // namespace kolo::recorder
