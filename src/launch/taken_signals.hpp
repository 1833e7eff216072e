// SPDX-License-Identifier: Apache-2.0
//
// Signals that come by a descriptor instead of a handler, while this lives.
#pragma once

#include <csignal>
#include <optional>

#include "base/unique_fd.hpp"

namespace kolo::launch {

/// Those with which a person or a system ends a job (SIGINT, SIGTERM, SIGHUP), unless this process ignores them, as
/// under nohup: a blocked signal would come all the same. Those with which a system warns of the end (SIGUSR1,
/// SIGUSR2), unless the program does something with them. The end of a child is not ignored meanwhile, or nobody could
/// wait for one. Of the thread that makes it.
class TakenSignals {
 public:
  /// `children`: the descriptor is readable, too, when a child has ended.
  explicit TakenSignals(bool children);
  ~TakenSignals() { restore(); }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  struct Taken {
    int signal = 0;
    bool by_terminal = false;  ///< every process of the terminal's foreground group got it
  };

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] std::optional<Taken> take() const;
  /// As it was before: in a forked child, which does not take them.
  void restore() noexcept;

 private:
  sigset_t before_{};
  struct sigaction child_before_ = {};
  base::UniqueFd fd_;
};

/// Whether it ends a job.
[[nodiscard]] bool is_end(int signal) noexcept;

}  // namespace kolo::launch
