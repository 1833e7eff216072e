// SPDX-License-Identifier: Apache-2.0
//
// The thread by which NCCL puts the groups of non-blocking communicators on their streams: at some later time, and as
// any thread of a program that has not said otherwise, so that it may end a capture. (NCCL makes a thread for each
// group. One that is late with each by a seeded time of its own does the same to whoever watches.)
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "clock.hpp"

namespace kolo::emulated {

struct Communicator;

/// Under the machine's mutex, but for `end`.
class Launcher {
 public:
  Launcher() = default;
  ~Launcher() { end(); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// The communicator is enqueuing. `clock`: that of whoever ended the group.
  void launch_later(const std::shared_ptr<Communicator>& communicator, const VectorClock& clock);
  /// What is not launched yet never is.
  void cut_off();
  /// After `cut_off`, without the mutex.
  void end();

 private:
  struct Late {
    std::shared_ptr<Communicator> communicator;
    VectorClock clock;
    std::uint64_t due = 0;  // in doings of the machine
  };
  void run();
  [[nodiscard]] bool take_due(std::unique_lock<std::mutex>& lock, Late& due);
  static void launch(const Late& late);

  std::vector<Late> late_;
  bool cut_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace kolo::emulated
