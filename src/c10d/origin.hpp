// SPDX-License-Identifier: Apache-2.0
//
// Objects that a process inherits when it is forked, as data loaders' workers do. Their threads and their place in the
// job are the parent's: in the child their destructors do nothing.
#pragma once

#include <cstdint>

namespace kolo::c10d {

/// A member of such an object. Any thread may ask.
class Origin {
 public:
  Origin() noexcept : forks_(forks()) {}
  /// Whether this process has been forked since.
  [[nodiscard]] bool is_inherited() const noexcept { return forks_ != forks(); }

 private:
  /// Between the first process and this one.
  static std::uint32_t forks() noexcept;
  std::uint32_t forks_;
};

}  // namespace kolo::c10d
