// SPDX-License-Identifier: Apache-2.0
//
// How a rank comes to its end without a fatal error. It says that it leaves; the log closes, when all ranks have left
// or when nobody is there any more to go on with it; the engine stops, once, whatever has happened.
#pragma once

#include <atomic>
#include <utility>

#include <kolo/error.hpp>

namespace kolo::engine {

class Ending {
 public:
  // -- any thread
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_.load(std::memory_order_acquire); }
  /// Whether it was not stopped before.
  [[nodiscard]] bool stop() noexcept { return !stopped_.exchange(true); }
  /// Whether an operation of this rank has failed because another rank has left.
  [[nodiscard]] bool is_deserted() const noexcept { return deserted_.load(); }

  // -- the driver
  void note_desertion() noexcept { deserted_.store(true); }
  /// This rank submits nothing more.
  void leave() noexcept { leaving_ = true; }
  [[nodiscard]] bool is_leaving() const noexcept { return leaving_; }
  /// The log has ended without a fatal error. Operations that come later fail with `status`.
  void close(Status status) {
    closed_ = true;
    closed_as_ = std::move(status);
  }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }
  [[nodiscard]] const Status& closed_as() const noexcept { return closed_as_; }

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<bool> deserted_{false};
  bool leaving_ = false;
  bool closed_ = false;
  Status closed_as_;
};

}  // namespace kolo::engine
