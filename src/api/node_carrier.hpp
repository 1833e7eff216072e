// SPDX-License-Identifier: Apache-2.0
//
// Chooses what carries data between nodes: UCX, or the transport of the start (KOLO_TRANSPORT). A new transport is
// added here.
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

/// Collective; call it if there is more than one node. The choice is the same on every rank, by rank 0's settings.
/// `spans_machines`: the nodes are on more than one machine. `interfaces`: those by which this machine's control
/// connections reach others; data uses them, too, unless the settings say otherwise. If it fails on one rank, it throws
/// Error on every rank, also if data does not reach the other nodes within `patience`.
Carrier choose_carrier(bootstrap::Bootstrap& bootstrap, const base::Settings& settings, const core::Topology& topology,
                       bool spans_machines, const std::vector<std::string>& interfaces, base::Duration patience);

}  // namespace kolo::api
