// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/local_socket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::shm {

namespace {

sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  KOLO_CHECK(name.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

base::UniqueFd make_socket() {
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) base::throw_errno("making a local socket", errno);
  return fd;
}

void set_blocking(int fd, bool blocking) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0)
    base::throw_errno("fcntl(O_NONBLOCK)", errno);
}

void set_send_timeout(int fd, base::Duration timeout) {
  const auto microseconds = std::chrono::ceil<std::chrono::microseconds>(timeout).count();
  const timeval value{static_cast<time_t>(microseconds / 1'000'000),
                      static_cast<suseconds_t>(microseconds % 1'000'000)};
  if (::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof value) != 0)
    base::throw_errno("setsockopt(SO_SNDTIMEO)", errno);
}

/// The system does not signal when a user's descriptors have arrived.
void wait_for_arrivals(base::Time deadline) {
  constexpr int kMilliseconds = 1;
  if (base::now() >= deadline) base::throw_errno("handing over a descriptor", ETOOMANYREFS);
  if (::poll(nullptr, 0, kMilliseconds) < 0 && errno != EINTR) base::throw_errno("poll", errno);
}

bool is_gone(int error) { return error == EPIPE || error == ECONNRESET; }

/// Room for the descriptors of a packet, aligned as the kernel wants it.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(LocalSocket::kDescriptorsPerPacket * sizeof(int))> bytes{};
};

std::vector<base::UniqueFd> descriptors_in(msghdr& message) {
  std::vector<base::UniqueFd> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

}  // namespace

LocalSocket::LocalSocket() : fd_(make_socket()) {}

/// Sleeps until the descriptor is ready or closed.
void LocalSocket::await(short events, base::Time deadline, const std::function<void()>& check,
                        const char* doing) const {
  constexpr std::chrono::milliseconds kCheckEvery{50};
  while (true) {
    check();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::now());
    if (left.count() <= 0) throw PeerError(peer_name_ + " did not answer in time (" + doing + ")");
    pollfd entry{fd(), events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min(left, kCheckEvery).count()));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) base::throw_errno(doing, errno);
  }
}

void LocalSocket::connect(const std::string& name, base::Time deadline) {
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  set_blocking(fd(), true);  // a blocking connect waits for room in the listener's queue, which cannot be polled for
  while (true) {
    // A timeout of 0 would mean no timeout.
    set_send_timeout(fd(), std::max<base::Duration>(deadline - base::now(), std::chrono::milliseconds(1)));
    if (::connect(fd(), reinterpret_cast<const sockaddr*>(&address), length) == 0) break;
    if (errno == ECONNREFUSED) throw PeerError(peer_name_ + " does not listen any more");
    if (errno != EINTR && errno != EAGAIN) base::throw_errno("connecting to the leader of this node", errno);
    if (base::now() >= deadline)
      throw PeerError(peer_name_ + " had no room for another connection until the time was over");
  }
  set_blocking(fd(), false);
}

void LocalSocket::send(const std::string& bytes, const std::vector<int>& descriptors, base::Time deadline) {
  KOLO_CHECK(!bytes.empty() && bytes.size() <= kLongestPacket && descriptors.size() <= kDescriptorsPerPacket);
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};  // sendmsg only reads it
  Control control;
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  }
  constexpr const char* kDoing = "sending it a packet";
  while (::sendmsg(fd(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (is_gone(errno)) throw PeerError(peer_name_ + " closed its connection");
    if (errno == ETOOMANYREFS) {
      wait_for_arrivals(deadline);
    } else if (errno == EAGAIN) {
      await(
          POLLOUT, deadline, [] {}, kDoing);
    } else {
      base::throw_errno("sending a packet to a rank of this node", errno);
    }
  }
}

Packet LocalSocket::receive(base::Time deadline, const std::function<void()>& check) {
  while (true) {
    if (std::optional<Packet> packet = try_receive()) return std::move(*packet);
    await(POLLIN, deadline, check, "waiting for its packet");
  }
}

std::optional<Packet> LocalSocket::try_receive() {
  std::array<char, kLongestPacket> buffer;
  iovec part{buffer.data(), buffer.size()};
  Control control;
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t bytes = -1;
  do {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    bytes = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0 && errno == EAGAIN) return {};
  if (bytes == 0 || (bytes < 0 && is_gone(errno))) throw PeerError(peer_name_ + " closed its connection");
  if (bytes < 0) base::throw_errno("receiving a packet from a rank of this node", errno);
  Packet packet{std::string(buffer.data(), static_cast<std::size_t>(bytes)), descriptors_in(message), false};
  packet.descriptors_lost = (message.msg_flags & MSG_CTRUNC) != 0;
  if ((message.msg_flags & MSG_TRUNC) != 0) throw PeerError(peer_name_ + " sent a packet that is too long");
  return packet;
}

bool LocalSocket::has_packet() const {
  pollfd entry{fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

Peer LocalSocket::peer() const {
  ucred credentials = {};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    base::throw_errno("asking who a rank of this node is", errno);
  return {credentials.pid, credentials.uid};
}

LocalListener::LocalListener(int backlog) : fd_(make_socket()) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // An address that has only the family asks the kernel for a free abstract name.
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address.sun_family) != 0)
    base::throw_errno("naming a local socket", errno);
  if (::listen(fd_.get(), backlog) != 0) base::throw_errno("listening on a local socket", errno);
  socklen_t length = sizeof address;
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    base::throw_errno("asking for a local socket's name", errno);
  name_.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
}

std::optional<LocalSocket> LocalListener::try_accept() {
  while (true) {
    base::UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return LocalSocket(std::move(fd));
    if (errno == EAGAIN) return {};
    if (errno != EINTR && errno != ECONNABORTED) base::throw_errno("accepting a rank of this node", errno);
  }
}

}  // namespace kolo::shm
