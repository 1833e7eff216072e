// SPDX-License-Identifier: Apache-2.0
//
// A file descriptor with one owner.
#pragma once

#include <utility>

namespace kolo::base {

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  [[nodiscard]] explicit operator bool() const noexcept { return valid(); }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes the old descriptor, and owns the given one. Closing a descriptor that is not open is a bug and aborts.
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace kolo::base
