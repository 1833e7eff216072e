// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a node hand descriptors to each other: all connect to the leader, who listens on an abstract
// socket whose name the kernel chose; each brings one descriptor and receives those that the leader sends. (Such names
// live in a network namespace: hosts do not see each other's.) Both ends must belong to the same user and know the job
// key.
//
// The system limits how many descriptors a user has on their way (RLIMIT_NOFILE), whatever the number of processes. So
// the leader sends to one rank at a time, and goes on when that one has received all.
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

/// Runs a rank's part of a step, and lets the world hear of it: what it says, or why it failed. Returns what all said,
/// by rank of the world; throws Error(transport) on every rank when it failed on one. A rank that failed by itself is
/// named before ranks that failed because a peer did (PeerError).
std::vector<std::string> together(const transport::Meeting& meet, const std::function<std::string()>& step);

/// Throws Error(transport), naming the limit, unless this process can open so many descriptors more. Found out while
/// nobody waits for this rank yet.
void require_descriptors(std::size_t count);

/// What all calls here need to know. They throw Error(transport) when the system fails, PeerError when a peer is gone
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
  /// Called several times a second while ranks are waited for; ends the wait by what it throws.
  const std::function<void()> check;
  std::vector<int> ranks;  ///< of the world, by local rank
};

/// A rank that has connected to the leader, with what it brought.
struct Member {
  int local_rank = 0;
  LocalSocket socket;
  base::UniqueFd brought;
};

/// The leader: waits until all other ranks of the node have connected. Strangers are closed; they may be silent, or
/// many, without keeping ranks out.
std::vector<Member> accept_members(LocalListener& listener, const Gathering& gathering);
/// The leader: gives each member copies of these.
void send_descriptors(std::vector<Member>& members, const std::vector<int>& descriptors, const Gathering& gathering);

/// The others: bring one descriptor, over a socket that is not connected yet.
void connect_to_leader(LocalSocket& socket, const std::string& leader, int brought, const Gathering& gathering);
/// The others: what the leader sends, `expected` descriptors.
std::vector<base::UniqueFd> receive_descriptors(LocalSocket& leader, std::size_t expected, const Gathering& gathering);

}  // namespace kolo::shm
