// SPDX-License-Identifier: Apache-2.0
//
// An entry of the log, as it is read, and what it asks for. Both are kept for their memory: entries come by the
// hundred.
#pragma once

#include <vector>

#include "control/codec.hpp"
#include "control/participant.hpp"

namespace kolo::engine {

struct LogReading {
  control::Bytes entry;
  std::vector<control::Action> actions;
};

}  // namespace kolo::engine
