// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace kolo::chaos {

/// What this process still holds of a job that it has left: shared memory, mapped or open, and sockets between the
/// ranks of a node. MPI's own are of other kinds.
std::vector<std::string> leftovers();

}  // namespace kolo::chaos
