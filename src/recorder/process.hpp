// SPDX-License-Identifier: Apache-2.0
//
// Which process it is, and what the system says of it.
#pragma once

#include <cstdint>
#include <string>

namespace kolo::recorder {

struct Process {
  std::uint64_t pid = 0;
  std::uint64_t start = 0;          ///< when it began, in the system's ticks since its boot; 0: not known
  std::uint64_t pid_namespace = 0;  ///< in which `pid` is its number; 0: not known

  [[nodiscard]] static Process self();
  /// Whether this process can say what has become of it: same boot (base::system_name), same namespace of processes.
  /// (Numbers of namespaces are used again, but only once no process of the old one is left.)
  [[nodiscard]] bool is_in_sight(const std::string& its_boot) const;
  /// Its state, as /proc has it: R runs, S sleeps, D waits for a device, T is stopped, t is traced, Z has ended; 0:
  /// there is no such process any more.
  /// Only for one that is in sight.
  [[nodiscard]] char state() const;
};

}  // namespace kolo::recorder
