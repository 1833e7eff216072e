// SPDX-License-Identifier: Apache-2.0
#include "launch/output.hpp"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace kolo::launch {
namespace {

/// How much text is kept for a slow reader. Beyond that the pipes fill, and the ranks wait as if they wrote to the
/// reader themselves.
constexpr std::size_t kMostUnsent = std::size_t{1} << 20;
/// A writable pipe takes this much without blocking.
constexpr std::size_t kPiece = PIPE_BUF;
/// A longer line is passed on in parts.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;

}  // namespace

bool Target::has_room() const noexcept { return unsent_.size() < kMostUnsent; }

void Target::put(std::string_view text) {
  unsent_ += text;
  write_some();
}

void Target::write_some() {
  std::size_t written = 0;
  pollfd one{fd_, POLLOUT, 0};
  while (written < unsent_.size() && ::poll(&one, 1, 0) > 0) {
    const ssize_t more = ::write(fd_, unsent_.data() + written, std::min(kPiece, unsent_.size() - written));
    if (more >= 0) {
      written += static_cast<std::size_t>(more);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      if (error_ == 0) error_ = errno;
      written = unsent_.size();
    }
  }
  unsent_.erase(0, written);
}

void ChildOutput::serve() {
  read_some(std::size_t{1} << 16);
  if (target_ == nullptr) return;
  // A carriage return also ends a line, because progress bars end with one.
  const std::size_t whole = text_.find_last_of("\n\r") + 1;
  pass_on(over() || (whole == 0 && text_.size() >= kLongestLine) ? text_.size() : whole);
}

void ChildOutput::finish() {
  int there = 0;
  if (!over() && ::ioctl(source_.get(), FIONREAD, &there) != 0) there = 0;
  for (auto left = static_cast<std::size_t>(there); left > 0 && !over();) left -= read_some(left);
  source_.reset();
  if (target_ != nullptr) pass_on(text_.size());
}

std::size_t ChildOutput::read_some(std::size_t most) {
  std::array<char, 1 << 16> piece;
  const ssize_t got = ::read(source_.get(), piece.data(), std::min(most, piece.size()));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (got <= 0) source_.reset();
  if (got <= 0) return 0;
  text_.append(piece.data(), static_cast<std::size_t>(got));
  return static_cast<std::size_t>(got);
}

void ChildOutput::pass_on(std::size_t bytes) {
  target_->put(std::string_view(text_).substr(0, bytes));
  text_.erase(0, bytes);
}

}  // namespace kolo::launch
