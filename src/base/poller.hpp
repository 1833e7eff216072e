// SPDX-License-Identifier: Apache-2.0
//
// Where an engine sleeps: epoll, level-triggered.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/event_fd.hpp"
#include "base/unique_fd.hpp"

namespace kolo::base {

/// `wait` and `poll` belong to one thread at a time; descriptors may be added and removed meanwhile from others.
/// Descriptors are not owned. All calls throw Error(transport) when the system fails.
class Poller {
 public:
  using Interest = std::uint32_t;
  static constexpr Interest kReadable = 1;
  static constexpr Interest kWritable = 2;
  static constexpr Interest kClosed = 4;  ///< the other end hung up, or the descriptor failed; always reported
  static constexpr Interest kOnce = 8;    ///< in an interest only: reported once, then not before the next `add`

  struct Event {
    std::uint64_t tag;
    Interest events;  ///< what is ready
  };

  Poller();

  /// Watches a descriptor; one that is watched already gets the new tag and interest. An interest of 0 reports only
  /// kClosed.
  void add(int fd, std::uint64_t tag, Interest interest = kReadable);
  /// Stops watching. No error if the descriptor is not watched, or was closed.
  void remove(int fd);

  /// Sleeps until something is ready or the timeout has passed (none: for ever), and replaces `events` by what is
  /// ready; several descriptors under one tag are several events. Timeouts from 10 ms on are rounded up to
  /// milliseconds. May return early with nothing (a signal came, or the timeout was longer than 24 days), so callers
  /// loop over their own deadline.
  void wait(std::optional<std::chrono::nanoseconds> timeout, std::vector<Event>& events);
  /// Replaces `events` by what is ready now, without sleeping.
  void poll(std::vector<Event>& events) { wait(std::chrono::nanoseconds(0), events); }

 private:
  void sleep_until_ready(std::chrono::nanoseconds timeout) const;

  UniqueFd fd_;
};

}  // namespace kolo::base
