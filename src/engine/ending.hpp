// SPDX-License-Identifier: Apache-2.0
//
// How a rank comes to its end: in order, or by a fatal error.
//
// In order: the rank says that it leaves; the log closes, when all ranks have left or when nobody is there any more to
// go on with it; the engine stops, once, whatever has happened. A rank that waits for the others no longer says that it
// goes, and stops without them (control/messages.hpp, "Leaving").
//
// By a fatal error: a rank that cannot go on reports it, and uses its backends no more. The log brings the error to
// all ranks, which record it. Where no log can be had (the leader is dead, a deadline goes unanswered), the rank
// records one by itself. From then on every operation, open or new, fails with it, and no caller's memory is touched.
// The node hears of it first. Only then are the backends aborted, which may block in a driver of the device: a driver
// does that without its lock (`Driving::run_deferred`), and fails what is open when it has been done.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "control/leader.hpp"
#include "engine/deferred.hpp"
#include "engine/driver.hpp"
#include "engine/open_operations.hpp"
#include "engine/sets.hpp"
#include "recorder/recorder.hpp"
#include "transport/inter_node.hpp"

namespace kolo::engine {

class Ending {
 public:
  /// `patience`: how long a reported error waits for the log to bring it. `leader`: null where this rank leads no node.
  /// `inter`: null with one node. All that is referred to outlives this.
  Ending(int rank, base::Duration patience, control::ToLeader& to_leader, control::Leader* leader, Sets& sets,
         OpenOperations& open, transport::InterNode* inter, Deferred& deferred, recorder::Recorder& recorder) noexcept
      : rank_(rank), patience_(patience), to_leader_(to_leader), leader_(leader), sets_(sets), open_(open),
        inter_(inter), deferred_(deferred), recorder_(recorder) {}

  // -- any thread
  /// Throws the fatal error, or shut_down, if there is one: the first thing that a call does.
  void check_usable() const {
    if (faulted() || is_stopped()) refuse();
  }
  /// A fatal error is recorded.
  [[nodiscard]] bool faulted() const noexcept { return recorded_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
  /// Whether it was not stopped before.
  [[nodiscard]] bool stop() noexcept { return !stopped_.exchange(true); }
  /// Whether an operation of this rank has ever failed because another rank has left.
  [[nodiscard]] bool was_deserted() const noexcept { return deserted_.load(); }
  /// Whether that is how matters stand: no later operation has succeeded. If this rank ends now, that is why.
  [[nodiscard]] bool is_deserted() const noexcept { return deserted_by() >= 0; }
  /// By which rank; -1: it is not.
  [[nodiscard]] int deserted_by() const noexcept { return deserted_by_.load(); }

  // -- the driver: in order
  /// An operation of this rank has failed because that rank has left. The world learns of it (control/messages.hpp,
  /// "First causes").
  void note_desertion(int by) KOLO_REQUIRES(kDriving);
  /// An operation that began then has succeeded; it was no send, which may be alone.
  void note_success(base::Time begun) KOLO_REQUIRES(kDriving) {
    if (is_deserted() && begun > deserted_at_) go_on();
  }
  /// This rank submits nothing more.
  void leave() noexcept { leaving_ = true; }
  [[nodiscard]] bool is_leaving() const noexcept { return leaving_; }
  /// This rank stops before all have left. The log ends for it; that is no common end.
  void go() noexcept { gone_ = true; }
  /// The log has ended because all ranks have left, as far as this rank can tell.
  [[nodiscard]] bool is_closed_for_all() const noexcept { return closed_ && !gone_; }
  /// The log has ended without a fatal error. Operations that come later fail with `status`.
  void close(Status status) {
    closed_ = true;
    closed_as_ = std::move(status);
  }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }
  [[nodiscard]] const Status& closed_as() const noexcept { return closed_as_; }

  // -- the driver: fatal errors
  /// Of the exception that is being handled.
  void report_exception() noexcept KOLO_REQUIRES(kDriving);
  /// This rank cannot go on because of `rank`, itself or a peer. The world learns of it; if rank 0 does not answer,
  /// this rank fails by itself.
  void report_loss(int rank, ErrorCode code, const std::string& reason) KOLO_REQUIRES(kDriving);
  void report(ErrorCode code, const std::string& reason) KOLO_REQUIRES(kDriving) { report_loss(rank_, code, reason); }
  /// Records an error, unless there is one.
  void record(const Status& status) KOLO_REQUIRES(kDriving);
  /// Records the reported error, if it is time.
  bool record_if_due(base::Time now) KOLO_REQUIRES(kDriving) {
    if (now < due) return false;
    record(reported_);
    return true;
  }
  /// Once it is recorded; it does not change any more, so without the mutex.
  [[nodiscard]] const Status& status() const noexcept KOLO_NO_THREAD_SAFETY_ANALYSIS { return status_; }
  [[nodiscard]] const Status& reported() const noexcept { return reported_; }
  [[nodiscard]] bool has_reported() const noexcept { return !reported_.ok(); }
  [[nodiscard]] bool may_use_backends() const noexcept { return !has_reported() && !faulted(); }
  /// How what is open ends, where all of it does.
  [[nodiscard]] Status end_of_all() const {
    if (faulted()) return status();
    return Status(ErrorCode::shut_down, "the context was shut down before this operation completed");
  }

  /// A rank that the transport between nodes has lost.
  struct Loss {
    int rank = 0;
    std::string reason;
  };
  std::vector<Loss> losses;            ///< that may still prove to be departures
  base::Time due = base::Time::max();  ///< when the reported error is recorded here, should the log not bring one
  bool abort_due = false;              ///< an error is recorded, and the CPU's backends must be aborted
  bool device_abort_due = false;       ///< that is done, and the background thread must abort the device's

 private:
  [[noreturn]] void refuse() const;
  void go_on() KOLO_REQUIRES(kDriving);

  const int rank_;
  const base::Duration patience_;
  control::ToLeader& to_leader_ KOLO_GUARDED_BY(kDriving);
  control::Leader* const leader_ KOLO_PT_GUARDED_BY(kDriving);
  Sets& sets_ KOLO_GUARDED_BY(kDriving);
  OpenOperations& open_ KOLO_GUARDED_BY(kDriving);
  transport::InterNode* const inter_;
  Deferred& deferred_;
  recorder::Recorder& recorder_;

  std::atomic<bool> stopped_{false};
  std::atomic<bool> deserted_{false};
  std::atomic<int> deserted_by_{-1};
  base::Time deserted_at_{};
  bool leaving_ = false;
  bool gone_ = false;
  bool closed_ = false;
  Status closed_as_;
  std::atomic<bool> recorded_{false};
  mutable base::Mutex mutex_;
  Status status_ KOLO_GUARDED_BY(mutex_);  // constant once recorded
  Status reported_;
};

}  // namespace kolo::engine
