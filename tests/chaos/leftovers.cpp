// SPDX-License-Identifier: Apache-2.0
#include "leftovers.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace kolo::chaos {
namespace {

constexpr const char* kSegment = "memfd:kolo";

/// The inodes of all sockets between processes that carry packets.
std::set<std::string> packet_sockets() {
  std::set<std::string> inodes;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode;
    if (fields >> number >> references >> protocol >> flags >> type >> state >> inode && type == "0005")
      inodes.insert("socket:[" + inode + "]");
  }
  return inodes;
}

}  // namespace

std::vector<std::string> leftovers() {
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kSegment) != std::string::npos) found.push_back("mapped: " + line);
  }
  const std::set<std::string> sockets = packet_sockets();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    const std::string target = std::filesystem::read_symlink(entry.path(), closed_meanwhile).string();
    if (target.find(kSegment) != std::string::npos || sockets.count(target) != 0)
      found.push_back("open: " + entry.path().filename().string() + " " + target);
  }
  return found;
}

}  // namespace kolo::chaos
