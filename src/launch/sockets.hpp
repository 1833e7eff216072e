// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets that never block: resolving, listening, connecting, and waiting for several of them until a deadline.
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/unique_fd.hpp"

namespace kolo::launch {

/// An IPv4 or IPv6 address and a port.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] Endpoint with_port(std::uint16_t other) const noexcept;
};

/// "10.0.0.1", "::1".
[[nodiscard]] std::string address_text(const Endpoint& endpoint);
/// "10.0.0.1:29500", "[::1]:29500".
[[nodiscard]] std::string to_text(const Endpoint& endpoint);

/// All addresses of a host, each once, which may be an address itself. Empty, and `wrong` says why, when it has none.
/// It asks the system's resolver, which has a patience of its own.
[[nodiscard]] std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, std::string& wrong);

/// Every address of this machine, IPv6 and IPv4 by one socket where the machine has both.
[[nodiscard]] Endpoint any_address(std::uint16_t port, bool v6);

/// A socket that is bound and does not listen, so that nobody else gets the port meanwhile. Invalid, and `error` is
/// set, when the system refuses.
[[nodiscard]] base::UniqueFd bind_socket(const Endpoint& endpoint, int& error);
/// Bound as `bind_socket` and listening. The two together: who has bound a port may keep it while a child listens
/// there.
[[nodiscard]] base::UniqueFd listen_at(const Endpoint& endpoint, int& error);
/// Where a socket is bound; whom it is connected to. `own_endpoint` throws Error (transport).
[[nodiscard]] Endpoint own_endpoint(int fd);
[[nodiscard]] std::string peer_text(int fd);

/// Small pieces go at once.
void hurry(int fd) noexcept;
/// Begins to connect. Invalid, and `error` is set, when that fails at once. Else `connect_error` tells once the socket
/// can be written.
[[nodiscard]] base::UniqueFd connect_to(const Endpoint& endpoint, int& error);
/// 0, or the error with which connecting ended. A socket that has met itself (its own port happens to be the one that
/// it wants) was refused: nobody else is there.
[[nodiscard]] int connect_error(int fd) noexcept;

/// Waits until something happens at one of them, and at most until the deadline; never longer than a second, so that
/// callers may look at what has no descriptor. Throws Error (transport).
void wait_until(std::vector<pollfd>& sockets, base::Time deadline);

}  // namespace kolo::launch
