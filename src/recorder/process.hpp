// SPDX-License-Identifier: Apache-2.0
//
// Which process it is, and what the system says of it.
#pragma once

#include <cstdint>
#include <string>

namespace kolo::recorder {

struct Process {
  std::uint64_t pid = 0;
  std::uint64_t start = 0;  ///< when it began, in the system's ticks since its boot; 0: not known

  [[nodiscard]] static Process self();
  /// Its state, as /proc has it: R runs, S sleeps, D waits for a device, T is stopped, t is traced, Z has ended; 0:
  /// there is no such process any more.
  [[nodiscard]] char state() const;
};

/// Differs from boot to boot, and from machine to machine. Containers of one system have the same.
[[nodiscard]] std::string boot_id();

/// Of this machine.
[[nodiscard]] std::string host_name();

}  // namespace kolo::recorder
