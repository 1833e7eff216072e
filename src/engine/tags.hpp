// SPDX-License-Identifier: Apache-2.0
//
// What an engine's poller watches, by tag.
#pragma once

#include <cstdint>

#include <unistd.h>

namespace kolo::engine {

inline constexpr std::uint64_t kWakeTag = 1;
inline constexpr std::uint64_t kControlTag = 2;
inline constexpr std::uint64_t kAlarmTag = 3;
inline constexpr std::uint64_t kTransportTag = 4;
inline constexpr std::uint64_t kLivenessTag = 16;  ///< and the local rank on top

/// Empties an eventfd; that it is empty already is no error.
inline void drain_wake(int fd) noexcept {
  std::uint64_t count = 0;  // one read takes all
  [[maybe_unused]] const ssize_t bytes = ::read(fd, &count, sizeof count);
}

}  // namespace kolo::engine
