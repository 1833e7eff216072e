// SPDX-License-Identifier: Apache-2.0
//
// A thread for calls that may never return: a write to a file system that hangs cannot be interrupted. The owner waits
// for such a thread only so long, and then leaves it to itself, with the memory that it owns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace kolo::base {

/// How long Kolo waits for files without which a job can go on: timelines and metrics.
inline constexpr std::chrono::seconds kFilePatience{10};

class LeavableThread {
 public:
  /// No thread.
  LeavableThread() = default;
  /// `body` owns everything that it touches, and throws nothing. Throws Error (transport): "<what> cannot be started:
  /// ...".
  LeavableThread(std::string_view what, std::function<void()> body);
  /// Leaves the thread, if it still runs.
  ~LeavableThread();
  LeavableThread(const LeavableThread&) = delete;
  LeavableThread& operator=(const LeavableThread&) = delete;

  /// Whether it has ended by then. (There may be none.)
  [[nodiscard]] bool ends_by(Time deadline) noexcept;

 private:
  struct End {
    Mutex mutex;
    ConditionVariable changed;
    bool is_over KOLO_GUARDED_BY(mutex) = false;
  };
  std::shared_ptr<End> end_;
  std::thread thread_;
};

/// Runs `body` on such a thread, and throws what it throws. False: it has not returned within `patience`, and goes on
/// alone.
[[nodiscard]] bool run_within(Duration patience, std::string_view what, std::function<void()> body);

}  // namespace kolo::base
