// SPDX-License-Identifier: Apache-2.0
//
// Where an engine sleeps (epoll, level-triggered), and two descriptors that wake it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.hpp"
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

/// A wake-up descriptor: one thread sleeps on it with a Poller, and any thread (or process that inherited it) signals
/// it. Not inherited by exec; never blocks. `signal` and `drain` may be called from any thread.
class EventFd {
 public:
  /// Throws Error(transport).
  EventFd();

  /// Makes the descriptor readable until the next `drain`. Many signals are one.
  void signal() const noexcept;
  /// Forgets the signals so far; true when there were any.
  bool drain() const noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

/// An alarm for a thread that sleeps with a Poller, set by another one without waking it. Not inherited by exec; never
/// blocks. `set` and `drain` may be called from any thread.
class TimerFd {
 public:
  /// Throws Error(transport).
  TimerFd();

  /// Makes the descriptor readable at `when` (immediately if that has passed). Replaces an earlier alarm that has not
  /// gone off.
  void set(Time when) noexcept;
  /// Makes it unreadable until the next alarm.
  void drain() const noexcept;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace kolo::base
