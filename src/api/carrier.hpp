// SPDX-License-Identifier: Apache-2.0
//
// What carries data between nodes: UCX, or what comes with the start (KOLO_TRANSPORT).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/settings.hpp"
#include "bootstrap/bootstrap.hpp"
#include "core/topology.hpp"
#include "transport/inter_node.hpp"

namespace kolo::api {

struct Carrier {
  std::shared_ptr<transport::InterNode> transport;
  /// "UCX 1.13.1 (KOLO_TRANSPORT=ucx)": what it is, and why it was chosen.
  std::string description;
};

/// Collective, where there is more than one node: the same on every rank, by rank 0's settings. `spans_machines`: the
/// nodes are not all of one. `interfaces`: of this machine, those by which its control connections reach others; data
/// goes the same way unless the settings say otherwise. Throws Error on every rank alike, also where data does not
/// reach the other nodes within `patience`.
Carrier choose_carrier(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                       bool spans_machines, const std::vector<std::string>& interfaces, base::Duration patience);

}  // namespace kolo::api
