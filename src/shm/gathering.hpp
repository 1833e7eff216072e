// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a node hand descriptors to each other: all visit the leader, who listens on an abstract socket
// whose name the kernel chose; each brings one descriptor, and takes home what the leader hands out. (Such names live
// in a network namespace: hosts do not see each other's.) Both ends must belong to the same user and know the job key.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"
#include "core/regions.hpp"
#include "shm/local_socket.hpp"

namespace kolo::shm {

/// Runs a rank's part of a step, and lets the world hear of it: what it says, or why it failed. Returns what all said,
/// by rank of the world; throws Error(transport) on every rank when it failed on one.
std::vector<std::string> together(const core::Meeting& meet, const std::function<std::string()>& step);

/// A rank that has come to the leader, with what it brought.
struct Guest {
  int local_rank = 0;
  LocalSocket socket;
  base::UniqueFd brought;
};

/// The leader: waits until all other ranks of the node have come; strangers are turned away. All calls here throw
/// Error(transport) when the system fails, a peer is gone, or the deadline passes.
std::vector<Guest> welcome(LocalListener& listener, int local_size, const std::string& job_key, base::Time deadline);
/// The leader: gives each guest copies of these.
void hand_out(std::vector<Guest>& guests, const std::vector<int>& descriptors, const std::string& job_key,
              base::Time deadline);

/// The others: bring one descriptor.
LocalSocket visit(const std::string& leader, int local_rank, int brought, const std::string& job_key,
                  base::Time deadline);
/// The others: take what the leader hands out, `expected` descriptors.
std::vector<base::UniqueFd> take_home(LocalSocket& leader, std::size_t expected, const std::string& job_key,
                                      base::Time deadline);

}  // namespace kolo::shm
