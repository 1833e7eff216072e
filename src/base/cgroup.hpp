// SPDX-License-Identifier: Apache-2.0
//
// How much CPU time this process's control groups grant, in CPUs.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace kolo::base {

/// The CPU quota, in CPUs, of a version 2 `cpu.max` ("200000 100000" is 2); empty for "max" or what does not parse.
std::optional<double> parse_cpu_max(std::string_view text);
/// The same for version 1's cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 is none.
std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us);
/// The smallest quota of a process's control groups and their ancestors, of either version. `memberships` is the text
/// of /proc/self/cgroup, `root` where control groups are mounted. In a container the path may lie outside the mount;
/// the parts of it that exist count, and their ancestors.
std::optional<double> cgroup_cpu_quota(std::string_view memberships, const std::filesystem::path& root);

/// The same for this process, mounted in /sys/fs/cgroup.
std::optional<double> process_cpu_quota();

}  // namespace kolo::base
