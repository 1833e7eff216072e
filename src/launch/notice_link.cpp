// SPDX-License-Identifier: Apache-2.0
#include "launch/notice_link.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <kolo/error.hpp>

#include "base/proof.hpp"
#include "base/system_error.hpp"

namespace kolo::launch {
namespace {

constexpr const char* kScheme = "local:";
/// An entry names each address of a machine.
constexpr std::size_t kLongestNotice = std::size_t{1} << 16;

base::UniqueFd local_socket() {
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) base::throw_errno("making a local socket", errno);
  return fd;
}

Session session_of(const std::string& word, bool is_parent) {
  return {base::prove(word, "notices"), is_parent, is_parent ? "a process of this job" : "kolo-run"};
}

}  // namespace

std::string encode(const ParentAddress& address) { return kScheme + address.name + "/" + address.word; }

ParentAddress decode_parent(const std::string& text) {
  const std::string scheme = kScheme;
  const std::size_t slash = text.find('/');
  base::Word word{};
  if (text.rfind(scheme, 0) != 0 || slash == std::string::npos || slash == scheme.size() ||
      slash - scheme.size() >= sizeof sockaddr_un::sun_path || !base::word_from_hex(text.substr(slash + 1), word)) {
    throw Error(ErrorCode::invalid_setting,
                "KOLO_KEEPER is not as kolo-run sets it (local:name/word); do not set it yourself");
  }
  return {text.substr(scheme.size(), slash - scheme.size()), text.substr(slash + 1)};
}

std::string generation_key(const std::string& job_key, std::uint64_t generation) {
  return base::hex_of(base::prove(job_key, "generation " + std::to_string(generation)));
}

// ---------------------------------------------------------------- a link

NoticeLink::NoticeLink(base::UniqueFd fd, Session session, pid_t peer)
    : connection_(std::move(fd), std::move(session), kLongestNotice), peer_(peer) {}

NoticeLink NoticeLink::connect(const ParentAddress& address) {
  base::UniqueFd fd = local_socket();
  sockaddr_un where = {};
  where.sun_family = AF_UNIX;
  std::memcpy(where.sun_path + 1, address.name.data(), std::min(address.name.size(), sizeof where.sun_path - 1));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.name.size());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&where), length) != 0) {
    const int error = errno;
    throw Error(
        ErrorCode::transport,
        "this process cannot reach the kolo-run that has started it (KOLO_KEEPER): " + base::errno_text(error) +
            (error == ECONNREFUSED ? "; it has ended, or another process of this rank is connected already" : ""));
  }
  return NoticeLink(std::move(fd), session_of(address.word, false), 0);
}

void NoticeLink::send(const membership::Notice& notice) {
  connection_.send({FrameType::notice, 0, membership::encode(notice)});
}

std::optional<membership::Notice> NoticeLink::take() {
  const std::optional<Frame> frame = connection_.take();
  if (!frame) return std::nullopt;
  if (frame->type != FrameType::notice) {
    throw Error(ErrorCode::transport, "a frame of the start came where a notice was expected");
  }
  return membership::decode(frame->body);
}

// ---------------------------------------------------------------- the listener

NoticeListener::NoticeListener() : fd_(local_socket()) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // An address that has only the family asks the kernel for a free abstract name.
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address.sun_family) != 0) {
    base::throw_errno("naming the socket of a process", errno);
  }
  if (::listen(fd_.get(), SOMAXCONN) != 0) base::throw_errno("listening for a process", errno);
  socklen_t length = sizeof address;
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    base::throw_errno("asking for the name of a socket", errno);
  }
  address_.name.assign(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  address_.word = base::hex_of(base::random_word());
}

std::optional<NoticeLink> NoticeListener::try_accept() {
  base::UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return std::nullopt;
    base::throw_errno("accepting a process", errno);
  }
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    base::throw_errno("asking who a process is", errno);
  }
  if (peer.uid != ::geteuid()) return std::nullopt;
  return NoticeLink(std::move(fd), session_of(address_.word, true), peer.pid);
}

}  // namespace kolo::launch
