// SPDX-License-Identifier: Apache-2.0
//
// Regions (transport/regions.hpp) of ranks that are processes: an anonymous file for each rank's part, which its peers
// map.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "transport/node_link.hpp"
#include "transport/regions.hpp"

namespace kolo::shm {

/// NodeLink::share between processes. `local_size`: of the node in the world; `patience`: how long a rank waits for its
/// node.
std::shared_ptr<transport::SharedRegion> share_between_processes(const transport::Sharers& sharers, int local_size,
                                                                 std::size_t bytes, const std::string& job_key,
                                                                 const transport::Meeting& meet,
                                                                 const std::function<void()>& check,
                                                                 base::Duration patience);

}  // namespace kolo::shm
