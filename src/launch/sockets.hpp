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
/// "10.0.0.1:29500", "[::1]:29500", "name:29500".
[[nodiscard]] std::string at_port(const std::string& host, std::uint16_t port);
[[nodiscard]] std::string to_text(const Endpoint& endpoint);

/// All addresses of a host, each once; `host` may be an address itself. Empty, and `wrong` says why, if it has none.
/// Asks the system's resolver, which has a timeout of its own.
[[nodiscard]] std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, std::string& wrong);

/// A socket that is bound and does not listen, so that no other process gets the port. Invalid, and `error` is set, if
/// the system refuses.
[[nodiscard]] base::UniqueFd bind_socket(const Endpoint& endpoint, int& error);
/// A socket that is bound and listens. A process that has called `bind_socket` may keep the port while a child listens
/// there.
[[nodiscard]] base::UniqueFd listen_at(const Endpoint& endpoint, int& error);
/// The socket's own address, and its peer's. `own_endpoint` throws Error (transport).
[[nodiscard]] Endpoint own_endpoint(int fd);
[[nodiscard]] std::string peer_text(int fd);

/// Sends small pieces at once (TCP_NODELAY).
void hurry(int fd) noexcept;
/// Begins to connect. Invalid, and `error` is set, if that fails at once. Otherwise call `connect_error` when the
/// socket is writable.
[[nodiscard]] base::UniqueFd connect_to(const Endpoint& endpoint, int& error);
/// 0, or the error with which connecting ended. A socket that has connected to itself (its own port happens to be the
/// wanted one) counts as refused, because no process listens there. Throws Error (transport).
[[nodiscard]] int connect_error(int fd);

/// Waits for an event at one of them, at most until the deadline, and never longer than a second, so that callers can
/// check what has no descriptor. Throws Error (transport).
void wait_until(std::vector<pollfd>& sockets, base::Time deadline);

}  // namespace kolo::launch
