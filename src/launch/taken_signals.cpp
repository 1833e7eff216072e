// SPDX-License-Identifier: Apache-2.0
#include "launch/taken_signals.hpp"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/system_error.hpp"

namespace kolo::launch {
namespace {

bool does(int signal, sighandler_t what) noexcept {
  struct sigaction action = {};
  return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == what;
}

}  // namespace

bool is_end(int signal) noexcept { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

TakenSignals::TakenSignals(bool children) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!does(signal, SIG_IGN)) ::sigaddset(&set, signal);
  }
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    if (does(signal, SIG_DFL)) ::sigaddset(&set, signal);
  }
  if (children) ::sigaddset(&set, SIGCHLD);
  if (::sigaction(SIGCHLD, nullptr, &child_before_) != 0) base::throw_errno("sigaction", errno);
  const bool unheard = does(SIGCHLD, SIG_IGN) || (child_before_.sa_flags & SA_NOCLDWAIT) != 0;
  struct sigaction heard = {};
  heard.sa_handler = SIG_DFL;
  if (unheard && ::sigaction(SIGCHLD, &heard, nullptr) != 0) base::throw_errno("sigaction", errno);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (fd_.valid()) return;
  const int error = errno;
  restore();
  base::throw_errno("signalfd", error);
}

std::optional<TakenSignals::Taken> TakenSignals::take() const {
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo != SIGCHLD) return Taken{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
  }
  return std::nullopt;
}

void TakenSignals::restore() noexcept {
  fd_.reset();
  static_cast<void>(::sigaction(SIGCHLD, &child_before_, nullptr));  // fails only for a wrong pointer
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace kolo::launch
