// SPDX-License-Identifier: Apache-2.0
#include "launch/connection.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

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

namespace {

constexpr char kFrameMagic = 'K';
/// The body and the proof follow. Numbers have the machine's byte order, the least significant byte first.
struct FrameHead {
  char magic = kFrameMagic;
  FrameType type{};
  std::uint16_t unused = 0;
  std::uint32_t step = 0;
  std::uint64_t length = 0;  ///< of the body
};
static_assert(sizeof(FrameHead) == 16);
constexpr std::size_t kFrameProofBytes = sizeof(base::Word);

template <class Value>
std::string_view raw_bytes(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

base::Word digest_of(std::string_view head_and_body) { return base::prove("Kolo's frame", head_and_body); }

}  // namespace

EncodedFrame::EncodedFrame(const Frame& frame) {
  const FrameHead head{kFrameMagic, frame.type, 0, frame.step, frame.body.size()};
  bytes.append(raw_bytes(head)).append(frame.body);
  digest = digest_of(bytes);
}

base::Word proof_of_frame(const base::Word& key, bool by_root, std::uint64_t number, const base::Word& digest) {
  std::string text = by_root ? "down" : "up";
  text.append(raw_bytes(number)).append(base::bytes_of(digest));
  return base::prove(base::bytes_of(key), text);
}

bool FrameReader::is_full() const noexcept {
  return received_.size() > longest_ + sizeof(FrameHead) + kFrameProofBytes;
}

std::optional<FrameReader::Received> FrameReader::take(std::string_view peer) {
  FrameHead head;
  if (received_.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, received_.data(), sizeof head);
  const bool is_type = head.type >= FrameType::contribution && head.type <= FrameType::notice;
  if (head.magic != kFrameMagic || !is_type || head.length > longest_) {
    throw Error(ErrorCode::transport, std::string(peer) + " sent what this release of Kolo cannot read; all ranks must "
                                                          "run the same release");
  }
  const std::size_t whole = sizeof head + head.length;
  if (received_.size() < whole + kFrameProofBytes) return std::nullopt;
  Received received{{head.type, head.step, received_.substr(sizeof head, head.length)},
                    digest_of(std::string_view(received_).substr(0, whole)),
                    {}};
  std::memcpy(received.proof.data(), received_.data() + whole, kFrameProofBytes);
  received_.erase(0, whole + kFrameProofBytes);
  return received;
}

}  // namespace kolo::launch
