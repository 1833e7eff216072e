// SPDX-License-Identifier: Apache-2.0
//
// What an engine knows of the fatal error that ended its world: first perhaps that it has announced one itself, then,
// once the log has brought it or nobody answers, the one that every operation fails with.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/mutex.hpp"

namespace kolo::engine {

class Failure {
 public:
  // -- any thread
  [[nodiscard]] bool is_recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }
  /// Throws it, once it is recorded.
  void check() const {
    if (!is_recorded()) return;
    const base::MutexLock lock(mutex_);
    throw Error(status_);
  }

  // -- the driver
  /// Once.
  void record(const Status& status) {
    {
      const base::MutexLock lock(mutex_);
      status_ = status;
    }
    recorded_.store(true, std::memory_order_release);
    due = base::Time::max();
    abort_due = true;
  }
  /// Once it is recorded; it does not change any more, so without the mutex.
  [[nodiscard]] const Status& status() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS { return status_; }
  /// Says that this rank has told the others of one, and uses its backends no more.
  void announce(Status status, base::Time record_at) {
    announced_ = std::move(status);
    due = record_at;
  }
  [[nodiscard]] const Status& announced() const noexcept { return announced_; }
  [[nodiscard]] bool is_announced() const noexcept { return !announced_.ok(); }
  /// Whether the backends can be used.
  [[nodiscard]] bool spares_backends() const noexcept { return !is_announced() && !is_recorded(); }

  /// A rank that the transport between nodes has lost.
  struct Loss {
    int rank = 0;
    std::string reason;
  };
  std::vector<Loss> losses;            ///< that may still prove to be departures
  base::Time due = base::Time::max();  ///< when the announced one is recorded here, should the log not bring one
  bool abort_due = false;              ///< it is recorded, and the backends must be aborted

 private:
  std::atomic<bool> recorded_{false};
  mutable base::Mutex mutex_;
  Status status_ KOLO_GUARDED_BY(mutex_);  // constant once recorded
  Status announced_;
};

}  // namespace kolo::engine
