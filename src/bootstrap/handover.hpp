// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a node come to share a segment: the leader makes it and hands it to the others over a local
// socket, and the sockets stay open, so that the end of a process is seen by its peers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "bootstrap/bootstrap.hpp"
#include "transport/node_link.hpp"

namespace kolo::bootstrap {

/// What a process bootstrap's `join_node` does; collective over the whole world, which meets twice in
/// `bootstrap.exchange`. If it fails for one rank it fails for all, with that rank's reason: Error(transport).
///
/// The others learn the name of the leader's socket (gathering.hpp) through the bootstrap. Each rank hands in the
/// descriptor of its bell, the leader hands out the segment and everybody's bells.
///
/// `patience`: how long the ranks of a node wait for each other, here and in NodeLink::share.
///
/// `liveness` watches each peer by its process (a pidfd), where it can be seen, and by its socket.
std::shared_ptr<transport::NodeLink> join_node(Bootstrap& bootstrap, const core::Topology& topology, std::size_t bytes,
                                               const std::string& job_key,
                                               base::Duration patience = base::from_seconds(60));

}  // namespace kolo::bootstrap
