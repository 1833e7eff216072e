// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a node share a segment: the leader makes it and passes it to the others over a local socket. The
// sockets stay open, so that peers see the end of a process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"
#include "transport/node_link.hpp"

namespace kolo::bootstrap {

/// Implements `join_node` for processes. Collective over the whole world; it calls `bootstrap.exchange` twice. If it
/// fails on one rank, it fails on all, with that rank's reason: Error(transport).
///
/// The others get the name of the leader's socket (gathering.hpp) through the bootstrap. Each rank sends the descriptor
/// of its bell (its wake-up descriptor), and the leader sends all ranks the segment and all bells.
///
/// `patience`: how long the ranks of a node wait for each other, here and in NodeLink::share.
///
/// `liveness` watches each peer's socket, and its process (a pidfd) if it can be seen.
std::shared_ptr<transport::NodeLink> join_node(Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes,
                                               const std::string& job_key,
                                               base::Duration patience = base::from_seconds(60));

}  // namespace kolo::bootstrap
