// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.hpp"

#include <cstdint>
#include <fstream>
#include <string>

#include "base/text.hpp"

namespace kolo::base {
namespace {

/// Nothing: it is not there, or cannot be read. (A group may go while it is read; a name may lead to a folder.)
std::optional<std::string> read_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text;
  if (!stream) return std::nullopt;
  std::getline(stream, text, '\0');
  if (stream.bad()) return std::nullopt;
  return text;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return parse_number<std::int64_t>(text);
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || (b && *b < *a)) return b;
  return a;
}

std::optional<double> quota_in(const std::filesystem::path& folder) {
  std::optional<double> quota;
  if (const auto max = read_text(folder / "cpu.max")) quota = parse_cpu_max(*max);
  const auto cfs_quota = read_text(folder / "cpu.cfs_quota_us");
  const auto cfs_period = read_text(folder / "cpu.cfs_period_us");
  if (cfs_quota && cfs_period) quota = smaller(quota, parse_cfs_quota(*cfs_quota, *cfs_period));
  return quota;
}

/// From mount/path up to mount itself.
std::optional<double> smallest_quota(const std::filesystem::path& mount, const std::filesystem::path& path) {
  std::optional<double> quota = quota_in(mount);
  std::filesystem::path folder = mount;
  for (const auto& part : path.relative_path()) {
    if (part == "..") break;  // outside the part that this process sees
    folder /= part;
    quota = smaller(quota, quota_in(folder));
  }
  return quota;
}

bool names_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

/// One line: "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers.
std::optional<double> quota_of_line(std::string_view line, const std::filesystem::path& root) {
  const std::size_t first = line.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const std::filesystem::path path(line.substr(second + 1));
  if (controllers.empty()) return smaller(smallest_quota(root, path), smallest_quota(root / "unified", path));
  if (!names_cpu(controllers)) return std::nullopt;
  return smaller(smallest_quota(root / controllers, path), smallest_quota(root / "cpu", path));
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return parse_cfs_quota(text.substr(0, space), text.substr(space + 1));
}

std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us) {
  const auto quota = parse_integer(quota_us);
  const auto period = parse_integer(period_us);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> cgroup_cpu_quota(std::string_view memberships, const std::filesystem::path& root) {
  std::optional<double> quota;
  while (!memberships.empty()) {
    const std::size_t newline = memberships.find('\n');
    quota = smaller(quota, quota_of_line(memberships.substr(0, newline), root));
    if (newline == std::string_view::npos) break;
    memberships.remove_prefix(newline + 1);
  }
  return quota;
}

std::optional<double> process_cpu_quota() {
  const auto memberships = read_text("/proc/self/cgroup");
  return memberships ? cgroup_cpu_quota(*memberships, "/sys/fs/cgroup") : std::nullopt;
}

}  // namespace kolo::base
