// SPDX-License-Identifier: Apache-2.0
//
// Which rank a relay has heard last, of those that it waits for (messages.hpp, "Waiting").
#pragma once

#include <cstdint>

namespace kolo::control::relay {

/// What a relay knows of a submission that it hears.
struct Voice {
  std::int32_t rank = -1;  ///< the last rank of those below the child; -1: the child does not know
  std::uint64_t pass = 0;  ///< in which it is heard, from 1
  bool is_own = false;     ///< of the leader's own rank, which has published it in this pass
};

struct LastHeard {
  std::int32_t rank = -1;
  std::uint64_t pass = 0;

  void hear(const Voice& voice) {
    rank = voice.pass == pass && !voice.is_own ? -1 : voice.rank;
    pass = voice.pass;
  }
};

}  // namespace kolo::control::relay
