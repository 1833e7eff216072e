// SPDX-License-Identifier: Apache-2.0
#include "facts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <stdexcept>

namespace kolo::chaos {

Facts::Facts(const std::string& folder, int rank)
    : fd_(::open((folder + "/rank." + std::to_string(rank)).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw std::runtime_error("cannot write to " + folder);
}

void Facts::note(const std::string& text) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  std::array<char, 40> time{};
  std::snprintf(time.data(), time.size(), "%lld.%06ld ", static_cast<long long>(now.tv_sec), now.tv_nsec / 1000);
  std::string line = time.data() + text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::perror("writing a fact");
}

}  // namespace kolo::chaos
