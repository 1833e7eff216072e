// SPDX-License-Identifier: Apache-2.0
//
// What a rank writes down for scripts/test chaos: a line for each fact, with the time, in a file of its own. The file
// is whole up to the moment at which the rank dies, whatever becomes of mpirun's pipes.
#pragma once

#include <string>

namespace kolo::chaos {

/// Thread-safe. Survives fork: parent and child write to the same file. Never destroyed.
class Facts {
 public:
  /// `folder`/rank.`rank`. Throws std::runtime_error.
  Facts(const std::string& folder, int rank);
  Facts(const Facts&) = delete;
  Facts& operator=(const Facts&) = delete;

  /// "<seconds of the monotonic clock> <text>"; line ends in the text become spaces.
  void note(const std::string& text);

 private:
  int fd_;
};

}  // namespace kolo::chaos
