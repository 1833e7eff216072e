// SPDX-License-Identifier: Apache-2.0
//
// Slurm's lists of hosts: "gpu[01-03,7],login,rack[1-2]n[0-1]".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kolo::launch {

/// The first host of the list; empty if it is no such list.
[[nodiscard]] std::optional<std::string> first_host(std::string_view list);

}  // namespace kolo::launch
