// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a node pass descriptors to each other. All connect to the leader, which listens on an abstract
// socket whose name the kernel chose. Each sends one descriptor, and receives those that the leader sends. (Such names
// belong to a network namespace: hosts do not see each other's.) Both ends must belong to the same user and know the
// job key.
//
// The system limits how many descriptors of a user may be under way (RLIMIT_NOFILE), for all processes together. The
// leader therefore sends to one rank at a time, and goes on when that rank has received all.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "core/topology.hpp"
#include "transport/regions.hpp"
#include "transport/shm/local_socket.hpp"

namespace kolo::shm {

/// Runs a rank's part of a step, and exchanges its result, or why it failed. Returns all results, by rank of the world.
/// If a rank fails, all ranks throw Error(transport). The error names a rank that failed by itself rather than one that
/// failed because a peer did (PeerError).
std::vector<std::string> together(const transport::Meeting& meet, const std::function<std::string()>& step);

/// Throws Error(transport), naming the limit, unless this process can open `count` more descriptors. Call it before
/// other ranks wait for this one.
void require_descriptors(std::size_t count);

/// The parameters of all calls here. They throw Error(transport) if the system fails, and PeerError if a peer is gone
/// or the deadline passes.
struct Gathering {
  Gathering(const core::Topology& of, const std::string& key, base::Duration most, std::function<void()> check_world,
            const std::vector<int>& members = {})
      : topology(of), job_key(key), patience(most), deadline(base::now() + most), check(std::move(check_world)),
        ranks(of.nodes[static_cast<std::size_t>(of.node)]) {
    if (members.empty()) return;
    for (int& rank : ranks) rank = members[static_cast<std::size_t>(rank)];
  }

  /// "rank 3", by its place on this node.
  [[nodiscard]] std::string name_of(int local_rank) const;

  const core::Topology& topology;
  const std::string& job_key;
  const base::Duration patience;
  const base::Time deadline;
  /// Called several times a second while ranks are waited for. If it throws, the wait ends with that exception.
  const std::function<void()> check;
  std::vector<int> ranks;  ///< of the world, by local rank
};

/// A rank that has connected to the leader, with its descriptor.
struct Member {
  int local_rank = 0;
  LocalSocket socket;
  base::UniqueFd brought;
};

/// The leader: waits until all other ranks of the node have connected. Connections of other processes are closed; they
/// cannot keep ranks out, even if they are many or silent.
std::vector<Member> accept_members(LocalListener& listener, const Gathering& gathering);
/// The leader: gives each member copies of these.
void send_descriptors(std::vector<Member>& members, const std::vector<int>& descriptors, const Gathering& gathering);

/// The others: send one descriptor, over a socket that is not connected yet.
void connect_to_leader(LocalSocket& socket, const std::string& leader, int brought, const Gathering& gathering);
/// The others: receive the leader's `expected` descriptors.
std::vector<base::UniqueFd> receive_descriptors(LocalSocket& leader, std::size_t expected, const Gathering& gathering);

}  // namespace kolo::shm
