// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes that find one another without MPI.
#pragma once

#include <memory>

#include "base/settings.hpp"
#include "bootstrap/bootstrap.hpp"
#include "launch/start.hpp"

namespace kolo::launch {

/// The bootstrap of processes that meet without MPI. `environment` has KOLO_JOB_KEY, from which `key_from` makes the
/// job's key, and KOLO_INTERFACE. Rank 0 listens when this returns; the first exchange waits for the others. There is
/// no transport between nodes: `inter_node` throws Error (unsupported). Throws Error (transport) when rank 0 cannot
/// listen.
[[nodiscard]] std::unique_ptr<bootstrap::Bootstrap> meet(const Start& start, const base::Lookup& environment);

}  // namespace kolo::launch
