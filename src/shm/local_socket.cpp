// SPDX-License-Identifier: Apache-2.0
#include "shm/local_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
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

/// Sleeps until the descriptor is ready or closed.
void await(int fd, short events, base::Time deadline, const char* what) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - base::now()).count();
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) base::throw_errno(what, errno);
    if (base::now() >= deadline) throw Error(ErrorCode::transport, std::string(what) + ": no answer in time");
  }
}

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

LocalSocket LocalSocket::connect(const std::string& name, base::Time deadline) {
  base::UniqueFd fd = make_socket();
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  // The listener's backlog has room for everybody who knows the name, so this does not have to wait.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    base::throw_errno("connecting to the node's leader", errno);
  await(fd.get(), POLLOUT, deadline, "connecting to the node's leader");
  return LocalSocket(std::move(fd));
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
  while (::sendmsg(fd(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) base::throw_errno("sending to a rank of this node", errno);
    await(fd(), POLLOUT, deadline, "sending to a rank of this node");
  }
}

Packet LocalSocket::receive(base::Time deadline) {
  std::array<char, kLongestPacket> buffer;
  while (true) {
    iovec part{buffer.data(), buffer.size()};
    Control control;
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t bytes = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
    if (bytes > 0) {
      Packet packet{std::string(buffer.data(), static_cast<std::size_t>(bytes)), descriptors_in(message)};
      if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0)
        throw Error(ErrorCode::transport, "a packet from a rank of this node was cut off: too few descriptors left?");
      return packet;
    }
    if (bytes == 0) throw Error(ErrorCode::transport, "a rank of this node closed its connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN) base::throw_errno("receiving from a rank of this node", errno);
    await(fd(), POLLIN, deadline, "receiving from a rank of this node");
  }
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
  // An address of nothing but the family asks the kernel for a free abstract name.
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address.sun_family) != 0)
    base::throw_errno("naming a local socket", errno);
  if (::listen(fd_.get(), backlog) != 0) base::throw_errno("listening on a local socket", errno);
  socklen_t length = sizeof address;
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    base::throw_errno("asking for a local socket's name", errno);
  name_.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
}

LocalSocket LocalListener::accept(base::Time deadline) {
  while (true) {
    base::UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) return LocalSocket(std::move(fd));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) base::throw_errno("accepting a rank of this node", errno);
    await(fd_.get(), POLLIN, deadline, "waiting for the ranks of this node");
  }
}

}  // namespace kolo::shm
