// SPDX-License-Identifier: Apache-2.0
#include "launch/children.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system_error.hpp"

namespace kolo::launch {

Pipe Pipe::make() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) base::throw_errno("making a pipe for a rank's output", errno);
  Pipe pipe;
  pipe.read.reset(ends[0]);
  pipe.write.reset(ends[1]);
  return pipe;
}

void flush_streams() noexcept {
  try {
    std::cout.flush();
    std::clog.flush();
  } catch (const std::exception&) {  // the program has enabled exceptions of its streams, which cannot be passed on
                                     // here
  }
  std::fflush(nullptr);
}

RaisedLimit::RaisedLimit(int ranks) {
  if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) base::throw_errno("getrlimit", errno);
  rlimit raised = before_;
  const rlim_t wanted = 1024 + 8 * static_cast<rlim_t>(ranks);
  raised.rlim_cur = std::max(before_.rlim_cur, std::min(before_.rlim_max, wanted));
  // If it fails, the error comes when a descriptor is missing.
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &raised));
}

RaisedLimit::~RaisedLimit() { static_cast<void>(::setrlimit(RLIMIT_NOFILE, &before_)); }

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

namespace {

std::set<pid_t> children() {
  std::set<pid_t> all;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t one = 0; list >> one;) all.insert(one);
  }
  return all;
}

}  // namespace

AdoptedProcesses::AdoptedProcesses() : before_(children()) {
  if (::prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_) != 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    base::throw_errno("adopting what ranks leave behind", errno);
  }
}

AdoptedProcesses::~AdoptedProcesses() { static_cast<void>(::prctl(PR_SET_CHILD_SUBREAPER, reaper_before_)); }

bool was_started_with(pid_t process, const std::string& variable) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  for (std::string one; std::getline(file, one, '\0');) {
    if (one == variable) return true;
  }
  return false;
}

std::vector<pid_t> AdoptedProcesses::find(const std::set<pid_t>& others) const {
  while (true) {
    std::vector<pid_t> found;
    bool is_new = false;
    for (const pid_t one : children()) {
      if (before_.count(one) != 0 || others.count(one) != 0) continue;
      const bool lives = ::waitpid(one, nullptr, WNOHANG) == 0;
      if (lives) found.push_back(one);
      is_new = is_new || !lives;  // its own children may have been adopted meanwhile
    }
    if (!is_new) return found;
  }
}

}  // namespace kolo::launch
