// SPDX-License-Identifier: Apache-2.0
//
// The end of what a tool prints.
#pragma once

#include <iostream>
#include <stdexcept>

namespace tools {

/// Before a tool ends in order. Throws std::runtime_error: what it has printed is lost, as on a full disk.
inline void flush_output() {
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("standard output could not be written");
}

}  // namespace tools
