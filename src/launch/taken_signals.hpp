// SPDX-License-Identifier: Apache-2.0
//
// While this object exists, signals are read from a descriptor instead of by a handler.
#pragma once

#include <csignal>
#include <optional>

#include "base/unique_fd.hpp"

namespace kolo::launch {

/// The signals are those that end a job (SIGINT, SIGTERM, SIGHUP), unless this process ignores them, as under nohup (a
/// blocked signal would still be delivered), and those that warn of the end (SIGUSR1, SIGUSR2), unless the program
/// handles them. SIGCHLD is not ignored meanwhile, so that children can be waited for. It applies to the thread that
/// makes the object.
class TakenSignals {
 public:
  /// `children`: the descriptor is readable, too, when a child has ended.
  explicit TakenSignals(bool children);
  ~TakenSignals() { restore(); }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  struct Taken {
    int signal = 0;
    bool by_terminal = false;  ///< the terminal sent it to every process of its foreground group
  };

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::optional<Taken> take() const;
  /// Restores the earlier state. For a forked child, which does not take the signals.
  void restore() noexcept;

 private:
  sigset_t before_{};
  struct sigaction child_before_ = {};
  base::UniqueFd fd_;
};

/// Whether the signal ends a job.
[[nodiscard]] bool is_end(int signal) noexcept;

}  // namespace kolo::launch
