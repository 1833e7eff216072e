// SPDX-License-Identifier: Apache-2.0
//
// Threads of Kolo's own: how they start, what they are called, how long others wait for them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace kolo::base {

/// Names the calling thread, for debuggers, top and /proc; Linux keeps the first 15 bytes.
void set_thread_name(std::string_view name);
/// The calling thread's name.
std::string thread_name();

/// Throws Error (transport): "<what> cannot be started: <why, and what to do>".
[[nodiscard]] std::thread start_thread(std::string_view what, std::function<void()> body);

/// How long Kolo waits for files without which a job can go on: timelines and metrics.
inline constexpr std::chrono::seconds kFilePatience{10};

/// A thread for calls that may never return: a write to a file system that hangs cannot be interrupted. The owner waits
/// for such a thread only so long, and then leaves it to itself, with the memory that it owns.
class LeavableThread {
 public:
  /// `body` owns everything that it touches. Throws Error (transport): "<what> cannot be started: ...".
  LeavableThread(std::string_view what, std::function<void()> body);
  /// Leaves the thread, if it still runs.
  ~LeavableThread();
  LeavableThread(const LeavableThread&) = delete;
  LeavableThread& operator=(const LeavableThread&) = delete;

  /// Whether it has ended by then. Throws what `body` has thrown. Once.
  [[nodiscard]] bool ends_by(Time deadline);

 private:
  std::future<void> over_;
  std::thread thread_;
};

/// Runs `body` on such a thread, and throws what it throws. False: it has not returned within `patience`, and goes on
/// alone.
[[nodiscard]] bool run_within(Duration patience, std::string_view what, std::function<void()> body);

/// A deadline for calls of a library that have none: ends the process if one of them lasts longer than `patience` and
/// an eighth of it: writes `last_words` to stderr and exits with `status`, without destructors and exit handlers, which
/// might hang as well. It looks eight times in that time, so that a process that was stopped, or got no CPU, has time
/// left. A call costs two stores. If the system cannot start a thread, there is no deadline.
class Watchdog {
 public:
  Watchdog(Duration patience, std::string last_words, int status);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// While it lives, its thread is inside a call. One thread at a time. Null: nobody watches.
  class Call {
   public:
    explicit Call(Watchdog* watchdog) noexcept : watchdog_(watchdog) { pass(); }
    ~Call() { pass(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    void pass() noexcept {
      if (watchdog_ == nullptr) return;
      std::atomic<std::uint64_t>& passes = watchdog_->passes_;
      passes.store(passes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    Watchdog* watchdog_;
  };

 private:
  void watch(Duration patience, const std::string& last_words, int status);

  std::atomic<std::uint64_t> passes_{0};  ///< into calls and out of them: odd inside one
  Mutex mutex_;
  ConditionVariable called_off_;
  bool over_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace kolo::base
