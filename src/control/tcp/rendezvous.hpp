// SPDX-License-Identifier: Apache-2.0
//
// Connecting to the parent and accepting the children: everything between listening and the first frame.
//
// All attempts run on one io_context, in the calling thread, until all are connected. There is one attempt for each
// address of the parent. The most promising address is tried first, the others a little later each, and a failed
// attempt begins again. There is one conversation for each incoming connection.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "control/tcp/addresses.hpp"
#include "control/tcp/asio.hpp"
#include "control/tcp/interfaces.hpp"

namespace kolo::tcp {

/// A leader to connect to, or that will connect.
struct Neighbour {
  int node = 0;
  int leader_rank = 0;
};

struct RendezvousPlan {
  int rank = 0;   ///< this leader's own
  int ranks = 0;  ///< of the world
  std::string job_key;
  Nonce nonce{};                           ///< our own
  std::vector<tcp::endpoint> listened_at;  ///< for error messages
  std::vector<Neighbour> children;
  std::vector<Neighbour> parent;  ///< one or none
  Nonce parent_nonce{};
  std::vector<tcp::endpoint> parent_endpoints;  ///< the most promising first
};

/// Returns connected sockets by node. Throws Error(transport) at the deadline. Afterwards no attempt is left, and the
/// acceptors are closed.
std::map<int, tcp::socket> meet(asio::io_context& io, std::vector<tcp::acceptor>& acceptors, const RendezvousPlan& plan,
                                std::chrono::milliseconds timeout);

/// A parent's endpoints in the order to try them: subnets of ours, others, loopback. Drops what cannot be reached
/// from here (IPv6 where we have none).
std::vector<tcp::endpoint> by_promise(std::vector<tcp::endpoint> listening, const std::vector<LocalAddress>& ours);

/// Makes the socket close when another program is executed: a child process must not keep a connection alive. Throws
/// Error(transport).
void close_on_exec(int fd);

}  // namespace kolo::tcp
