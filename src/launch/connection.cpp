// SPDX-License-Identifier: Apache-2.0
#include "launch/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

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

// magic, type, two unused bytes, step (4 bytes), length (8 bytes); the least significant byte first. The body and the
// proof follow.
constexpr char kFrameMagic = 'K';
constexpr std::size_t kFrameHeadBytes = 16;
constexpr std::size_t kFrameProofBytes = sizeof(base::Word);

void append_number(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
}

std::uint64_t number_at(const std::string& text, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)])} << (8 * i);
  }
  return value;
}

bool is_type(char byte) { return byte >= 1 && byte <= 5; }

base::Word digest_of(std::string_view head_and_body) { return base::prove("Kolo's frame", head_and_body); }

}  // namespace

EncodedFrame::EncodedFrame(const Frame& frame) {
  bytes += kFrameMagic;
  bytes += static_cast<char>(frame.type);
  append_number(bytes, 0, 2);
  append_number(bytes, frame.step, 4);
  append_number(bytes, frame.body.size(), 8);
  bytes += frame.body;
  digest = digest_of(bytes);
}

base::Word proof_of_frame(const base::Word& key, bool by_root, std::uint64_t number, const base::Word& digest) {
  std::string text = by_root ? "down" : "up";
  append_number(text, number, 8);
  text += base::bytes_of(digest);
  return base::prove(base::bytes_of(key), text);
}

bool FrameReader::is_full() const noexcept { return received_.size() > longest_ + kFrameHeadBytes + kFrameProofBytes; }

std::optional<FrameReader::Received> FrameReader::take(std::string_view peer) {
  if (received_.size() < kFrameHeadBytes) return std::nullopt;
  const std::uint64_t length = number_at(received_, 8, 8);
  if (received_[0] != kFrameMagic || !is_type(received_[1]) || length > longest_) {
    throw Error(ErrorCode::transport, std::string(peer) + " sent what this release of Kolo cannot read; all ranks must "
                                                          "run the same release");
  }
  const std::size_t whole = kFrameHeadBytes + length;
  if (received_.size() < whole + kFrameProofBytes) return std::nullopt;
  Received received;
  std::copy_n(received_.begin() + static_cast<std::ptrdiff_t>(whole), received.proof.size(), received.proof.begin());
  received.digest = digest_of(std::string_view(received_).substr(0, whole));
  received.frame.type = static_cast<FrameType>(received_[1]);
  received.frame.step = static_cast<std::uint32_t>(number_at(received_, 4, 4));
  received.frame.body = received_.substr(kFrameHeadBytes, length);
  received_.erase(0, whole + kFrameProofBytes);
  return received;
}

}  // namespace kolo::launch
