// SPDX-License-Identifier: Apache-2.0
//
// What KOLO_CHECK_REPLICAS says: when the parameters of optimizers are compared over the ranks, and which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::base {

struct ReplicaSetting {
  /// -1: never; 0: before the first step; N: also after every N-th step.
  std::int64_t interval = 0;
  /// Patterns of the names that are left out. `*` matches any run of characters, and all else itself.
  std::vector<std::string> left_out;

  [[nodiscard]] bool compares(std::string_view name) const noexcept;

  friend bool operator==(const ReplicaSetting&, const ReplicaSetting&) = default;
};

/// Words with commas between them: `first`, `off` (or `0`), a number of steps, and `-PATTERN`. Empty if they are not.
std::optional<ReplicaSetting> parse_replica_setting(std::string_view text);
/// The reverse.
std::string to_string(const ReplicaSetting& setting);

}  // namespace kolo::base
