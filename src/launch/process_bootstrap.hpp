// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes that find one another without MPI.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "launch/exchange.hpp"

namespace kolo::launch {

/// `reason`: why the processes start so, for `describe()`. `secret`: KOLO_JOB_KEY, of which `key_from` makes the job's
/// key; may be empty. Rank 0 listens when this returns; the first exchange waits for the others. The start brings no
/// transport between nodes: `inter_node` throws Error (unsupported).
std::unique_ptr<bootstrap::Bootstrap> process_bootstrap(const Place& place, std::unique_ptr<Directions> directions,
                                                        std::string reason, std::string secret);

}  // namespace kolo::launch
