// SPDX-License-Identifier: Apache-2.0
#include "launch/sockets.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/system_error.hpp"

namespace kolo::launch {
namespace {

/// How many ranks of a large job may connect at once; the system may allow fewer.
constexpr int kBacklog = 4096;
constexpr std::chrono::seconds kLongestWait{1};

struct FreeList {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

base::UniqueFd open_socket(int family, int& error) {
  base::UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  error = fd.valid() ? 0 : errno;
  return fd;
}

}  // namespace

void hurry(int fd) noexcept {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));  // else it is only slower
}

std::uint16_t Endpoint::port() const noexcept {
  // The port is at the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Endpoint Endpoint::with_port(std::uint16_t other) const noexcept {
  Endpoint result = *this;
  reinterpret_cast<sockaddr_in*>(&result.address)->sin_port = htons(other);
  return result;
}

std::string address_text(const Endpoint& endpoint) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool v6 = endpoint.address.ss_family == AF_INET6;
  const void* at = v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&endpoint.address)->sin6_addr)
                      : &reinterpret_cast<const sockaddr_in*>(&endpoint.address)->sin_addr;
  if (::inet_ntop(endpoint.address.ss_family, at, text, sizeof text) == nullptr) return "an unknown address";
  return text;
}

std::string at_port(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string to_text(const Endpoint& endpoint) { return at_port(address_text(endpoint), endpoint.port()); }

std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, std::string& wrong) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (result != 0) {
    wrong = "the host name " + host + " has no address: " + ::gai_strerror(result) +
            "; give the address itself (KOLO_STORE=tcp://address:port)";
    return {};
  }
  const std::unique_ptr<addrinfo, FreeList> list(found);
  std::vector<Endpoint> all;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.address, one->ai_addr, one->ai_addrlen);
    endpoint.length = one->ai_addrlen;
    const std::string text = to_text(endpoint);
    const bool is_new =
        std::none_of(all.begin(), all.end(), [&](const Endpoint& other) { return to_text(other) == text; });
    if (is_new) all.push_back(endpoint);
  }
  if (all.empty()) wrong = "the host name " + host + " has no IPv4 or IPv6 address";
  return all;
}

base::UniqueFd bind_socket(const Endpoint& endpoint, int& error) {
  base::UniqueFd fd = open_socket(endpoint.address.ss_family, error);
  if (!fd.valid()) return fd;
  const int on = 1;
  const int off = 0;
  // Connections that an earlier job has left at this port do not matter; a process that listens there does.
  bool well = ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
  if (well && endpoint.address.ss_family == AF_INET6) {
    well = ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
  }
  if (well) well = ::bind(fd.get(), endpoint.raw(), endpoint.length) == 0;
  if (!well) {
    error = errno;
    fd.reset();
  }
  return fd;
}

base::UniqueFd listen_at(const Endpoint& endpoint, int& error) {
  base::UniqueFd fd = bind_socket(endpoint, error);
  if (fd.valid() && ::listen(fd.get(), kBacklog) != 0) {
    error = errno;
    fd.reset();
  }
  return fd;
}

Endpoint own_endpoint(int fd) {
  Endpoint endpoint;
  endpoint.length = sizeof endpoint.address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&endpoint.address), &endpoint.length) != 0) {
    base::throw_errno("getsockname", errno);
  }
  return endpoint;
}

std::string peer_text(int fd) {
  Endpoint endpoint;
  endpoint.length = sizeof endpoint.address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&endpoint.address), &endpoint.length) != 0) return "a lost peer";
  return to_text(endpoint);
}

base::UniqueFd connect_to(const Endpoint& endpoint, int& error) {
  base::UniqueFd fd = open_socket(endpoint.address.ss_family, error);
  if (!fd.valid()) return fd;
  hurry(fd.get());
  if (::connect(fd.get(), endpoint.raw(), endpoint.length) != 0 && errno != EINPROGRESS) {
    error = errno;
    fd.reset();
  }
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error == 0 && to_text(own_endpoint(fd)) == peer_text(fd) ? ECONNREFUSED : error;
}

void wait_until(std::vector<pollfd>& sockets, base::Time deadline) {
  const auto left = std::min<base::Duration>(deadline - base::now(), kLongestWait);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::max(left, base::Duration::zero())).count();
  for (pollfd& one : sockets) one.revents = 0;
  if (::poll(sockets.data(), sockets.size(), static_cast<int>(ms)) < 0 && errno != EINTR) {
    base::throw_errno("poll", errno);
  }
}

}  // namespace kolo::launch
