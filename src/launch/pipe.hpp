// SPDX-License-Identifier: Apache-2.0
//
// What a process shares with those that it forks.
#pragma once

#include "base/unique_fd.hpp"

namespace kolo::launch {

struct Pipe {
  base::UniqueFd read;
  base::UniqueFd write;

  /// Both ends are closed by exec. Throws Error (transport).
  [[nodiscard]] static Pipe make();
};

/// Flushes the C and C++ output streams of this process: before a fork, and before the end of what was forked.
void flush_streams() noexcept;

}  // namespace kolo::launch
