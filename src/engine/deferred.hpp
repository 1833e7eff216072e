// SPDX-License-Identifier: Apache-2.0
//
// Deferred calls of the program's code: callbacks of on_done, and records for the log sink. That code may ask for
// metrics, destroy an arena, or take a lock of a thread that waits for the engine. It therefore never runs, and
// captures of a callback are never destroyed, while the driver's lock is held. A driver collects the calls under the
// lock, and runs them in order after it has released the lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/log.hpp"
#include "base/mutex.hpp"

namespace kolo::engine {

/// Calls back; what the callback throws is logged as an error and dropped.
inline void call_back(const std::function<void(const Status&)>& callback, const Status& status,
                      const base::Logger& logger) noexcept {
  try {
    callback(status);
  } catch (const std::exception& error) {
    KOLO_LOG(logger, error) << "a callback of on_done threw an exception, which was dropped: " << error.what();
  } catch (...) {
    KOLO_LOG(logger, error) << "a callback of on_done threw an exception, which was dropped";
  }
}

class Deferred {
 public:
  struct Call {
    std::function<void(const Status&)> callback;  ///< empty: a record for the log
    Status status;
    LogLevel level = LogLevel::off;
    std::string record;
  };

  explicit Deferred(const base::Logger& logger) noexcept : logger_(logger) {}

  // -- the driver, with its lock: collects
  void call(std::function<void(const Status&)> callback, const Status& status) {
    collected_.push_back({std::move(callback), status, LogLevel::off, {}});
  }
  void log(LogLevel level, std::string record) {
    if (logger_.enabled(level)) collected_.push_back({{}, {}, level, std::move(record)});
  }
  /// Writes a record whatever the log level, for settings that ask for it.
  void write(std::string record) { collected_.push_back({{}, {}, LogLevel::info, std::move(record)}); }
  /// Whether a record of this level is wanted.
  [[nodiscard]] bool logs(LogLevel level) const noexcept { return logger_.enabled(level); }
  [[nodiscard]] bool empty() const noexcept { return collected_.empty(); }
  [[nodiscard]] std::vector<Call> take() noexcept { return std::exchange(collected_, {}); }

  // -- any thread, without the lock: runs
  /// By value: what a callback has captured is destroyed here, too.
  void run(Call call) noexcept {
    {
      const base::MutexLock lock(mutex_);
      threads_.push_back(std::this_thread::get_id());
      running_.fetch_add(1);
    }
    if (call.callback) {
      call_back(call.callback, call.status, logger_);
      call.callback = nullptr;
    } else {
      logger_.write(call.level, call.record);
    }
    const base::MutexLock lock(mutex_);
    threads_.erase(std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()));
    running_.fetch_sub(1);
  }
  /// Whether this thread runs one.
  [[nodiscard]] bool is_here() {
    if (running_.load() == 0) return false;
    const base::MutexLock lock(mutex_);
    return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
  }

 private:
  const base::Logger& logger_;
  std::vector<Call> collected_;
  std::atomic<int> running_{0};
  base::Mutex mutex_;
  std::vector<std::thread::id> threads_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo::engine
