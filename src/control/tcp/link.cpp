// SPDX-License-Identifier: Apache-2.0
#include "control/tcp/link.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include <kolo/error.hpp>

#include "base/check.hpp"
#include "base/system_error.hpp"

namespace kolo::tcp {
namespace {

/// A peer that never stops sending must not keep the driver from the others.
constexpr int kReadsAtOnce = 64;

void set_option(int fd, int level, int name, int value, const char* what) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) base::throw_errno(what, errno);
}

void configure(tcp::socket& socket) {
  const int fd = socket.native_handle();
  constexpr int kIdleSeconds = 10;
  constexpr int kIntervalSeconds = 5;
  constexpr int kProbes = (kHostLostSeconds - kIdleSeconds) / kIntervalSeconds;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds, "TCP_KEEPIDLE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds, "TCP_KEEPINTVL");
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes, "TCP_KEEPCNT");
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kHostLostSeconds * 1000, "TCP_USER_TIMEOUT");
  error_code error;
  socket.non_blocking(true, error);
  if (error) throw Error(ErrorCode::transport, "a control connection cannot be made non-blocking: " + error.message());
}

std::array<std::byte, kLengthBytes> encode_length(std::size_t length) {
  std::array<std::byte, kLengthBytes> bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i));
  return bytes;
}

bool try_later(const error_code& error) { return error == asio::error::would_block || error == asio::error::try_again; }

/// Ends that a peer can cause that leaves in order. A reset is one: the peer closed while data of ours was under way.
bool is_departure(const error_code& error) {
  return error == asio::error::eof || error == asio::error::connection_reset || error == asio::error::broken_pipe;
}

}  // namespace

Link::Link(int node, int leader_rank, tcp::socket socket)
    : node_(node), leader_rank_(leader_rank), socket_(std::move(socket)) {
  configure(socket_);
}

Link::~Link() {
  if (!socket_.is_open()) return;
  error_code ignored;  // an error has no consequence here
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  std::array<std::byte, 4096> waste;
  for (int reads = 0; reads < kReadsAtOnce; ++reads) {
    if (socket_.read_some(asio::buffer(waste), ignored) == 0) break;
  }
  socket_.close(ignored);
}

void Link::attach(base::Poller& poller, std::uint64_t tag) {
  poller_ = &poller;
  tag_ = tag;
  if (!socket_.is_open()) return;
  wants_to_write_ = !outbox_.empty();
  poller.add(socket_.native_handle(), tag,
             base::Poller::kReadable | (wants_to_write_ ? base::Poller::kWritable : base::Poller::Interest{0}));
}

void Link::send(control::ByteView frame) {
  if (!socket_.is_open() || cannot_write_) return;
  KOLO_CHECK(frame.size() <= kMaxFrameBytes) << "a control frame of " << frame.size() << " bytes";
  const auto length = encode_length(frame.size());
  std::size_t written = 0;
  if (outbox_.empty()) {
    const std::array<asio::const_buffer, 2> parts = {asio::buffer(length), asio::buffer(frame.data(), frame.size())};
    error_code error;
    do {
      written = socket_.write_some(parts, error);
    } while (error == asio::error::interrupted);
    if (error && !try_later(error)) return stop_writing(error);
  }
  if (written < kLengthBytes) {
    outbox_.append(length.data() + written, kLengthBytes - written);
    written = kLengthBytes;
  }
  outbox_.append(frame.data() + (written - kLengthBytes), frame.size() - (written - kLengthBytes));
  write_backlog();
}

void Link::write_backlog() {
  while (!outbox_.empty()) {
    error_code error;
    const std::size_t written = socket_.write_some(asio::buffer(outbox_.data(), outbox_.size()), error);
    if (error == asio::error::interrupted) continue;
    if (try_later(error)) break;
    if (error) return stop_writing(error);
    outbox_.drop(written);
  }
  update_interest();
}

void Link::stop_writing(const error_code& error) {
  cannot_write_ = true;
  if (!end_) end_ = error;
  outbox_.clear();
  update_interest();
}

void Link::update_interest() {
  const bool wants = !outbox_.empty();
  if (poller_ == nullptr || wants == wants_to_write_) return;
  wants_to_write_ = wants;
  poller_->add(socket_.native_handle(), tag_,
               base::Poller::kReadable | (wants ? base::Poller::kWritable : base::Poller::Interest{0}));
}

std::optional<Link::End> Link::service(control::ControlChannel::Handler& handler) {
  if (!socket_.is_open()) return std::nullopt;
  // Deliver first: if the handler threw the last time, whole frames may be left, for which there is no event.
  Reading reading = Reading::more;
  deliver(handler);
  for (int reads = 0; reads < kReadsAtOnce && reading == Reading::more && inbox_.bad_length() == 0; ++reads) {
    reading = read_some();
    deliver(handler);
  }
  if (!cannot_write_) write_backlog();
  // A connection that cannot be written to any more is lost once nothing more comes in.
  const bool ended =
      reading == Reading::ended || inbox_.bad_length() != 0 || (cannot_write_ && reading == Reading::dry);
  if (!ended) return std::nullopt;
  End end{reason(), inbox_.bad_length() == 0 && is_departure(end_)};
  close();
  return end;
}

Link::Reading Link::read_some() {
  const auto room = inbox_.room();
  error_code error;
  const std::size_t got = socket_.read_some(asio::buffer(room, inbox_.free()), error);
  if (error == asio::error::interrupted) return Reading::more;
  if (try_later(error)) return Reading::dry;
  if (error) {
    end_ = error;
    return Reading::ended;
  }
  inbox_.commit(got);
  return Reading::more;
}

void Link::deliver(control::ControlChannel::Handler& handler) {
  while (const std::optional<control::ByteView> frame = inbox_.take()) handler.on_frame(node_, *frame);
}

void Link::close() {
  if (poller_ != nullptr) poller_->remove(socket_.native_handle());
  outbox_.clear();
  inbox_.clear();
  error_code ignored;  // the descriptor is gone whatever close says
  socket_.close(ignored);
}

std::string Link::reason() const {
  if (inbox_.bad_length() != 0) {
    return name() + " sent a frame of " + std::to_string(inbox_.bad_length()) + " bytes, more than the protocol allows";
  }
  const char* where = inbox_.empty() ? "" : " in the middle of a message";
  if (end_ == asio::error::eof || end_ == asio::error::broken_pipe) {
    return std::string("connection closed by ") + name() + where;
  }
  if (end_ == asio::error::connection_reset) return std::string("connection reset by ") + name() + where;
  if (end_ == asio::error::timed_out) {
    return name() + " did not answer for " + std::to_string(kHostLostSeconds) + " s";
  }
  return "connection to " + name() + " failed: " + end_.message();
}

std::string Link::name() const {
  return "node " + std::to_string(node_) + " (rank " + std::to_string(leader_rank_) + ")";
}

}  // namespace kolo::tcp
