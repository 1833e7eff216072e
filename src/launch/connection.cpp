// SPDX-License-Identifier: Apache-2.0
#include "launch/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include <kolo/error.hpp>

#include "base/system_error.hpp"

namespace kolo::launch {

short Connection::events() const noexcept { return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT); }

void Connection::send(const EncodedFrame& frame) {
  unsent_ += frame.bytes;
  unsent_ += base::bytes_of(proof_of_frame(session_.key, session_.is_root, frames_sent_++, frame.digest));
  send_some();
}

void Connection::pump() {
  send_some();
  receive_some();
}

void Connection::send_some() {
  std::size_t sent = 0;
  while (lost_.empty() && sent < unsent_.size()) {
    const ssize_t more = ::send(fd_.get(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL);
    if (more >= 0) {
      sent += static_cast<std::size_t>(more);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      lost_ = base::errno_text(errno);
    }
  }
  unsent_.erase(0, lost_.empty() ? sent : unsent_.size());
}

void Connection::receive_some() {
  std::array<char, 1 << 16> piece;
  while (true) {
    const ssize_t got = ::recv(fd_.get(), piece.data(), piece.size(), 0);
    if (got > 0) {
      reader_.append(piece.data(), static_cast<std::size_t>(got));
      if (reader_.is_full()) return;
    } else if (got == 0) {
      if (lost_.empty()) lost_ = "it was closed";
      return;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      if (lost_.empty()) lost_ = base::errno_text(errno);
      return;
    }
  }
}

std::optional<Frame> Connection::take() {
  std::optional<FrameReader::Received> received = reader_.take(session_.peer);
  if (!received) return std::nullopt;
  const base::Word due = proof_of_frame(session_.key, !session_.is_root, frames_taken_++, received->digest);
  if (!base::equal_words(received->proof, due)) {
    throw Error(ErrorCode::transport, "what came from " + session_.peer +
                                          " is not what it sent: another process stands between it and this rank");
  }
  return std::move(received->frame);
}

}  // namespace kolo::launch
