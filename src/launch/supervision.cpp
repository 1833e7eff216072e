// SPDX-License-Identifier: Apache-2.0
#include "launch/supervision.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/fields.hpp"
#include "base/files.hpp"
#include "base/system_error.hpp"
#include "base/thread.hpp"
#include "launch/children.hpp"
#include "launch/sockets.hpp"

namespace kolo::launch {
namespace {

/// What is killed needs no longer, unless the system holds it up.
constexpr std::chrono::seconds kKeeperGrace{2};
constexpr std::chrono::milliseconds kAdoptedLook{10};

/// The keeper's part. `failure` gets what `body` throws.
[[noreturn]] void be_keeper(const std::function<int(int)>& body, const Pipe& lifeline, const Pipe& failure) noexcept {
  int status = EXIT_FAILURE;
  Status why;
  try {
    base::set_thread_name("kolo-keeper");  // of another name than what one would kill by name
    status = body(lifeline.read.get());
  } catch (const Error& error) {
    why = error.status();
  } catch (const std::exception& error) {
    why = {ErrorCode::transport, error.what()};
  }
  if (!why.ok()) static_cast<void>(base::write_all(failure.write.get(), base::join_status(why)));
  flush_streams();
  ::_exit(status);
}

/// Passes signals on until the keeper has ended; how it has.
int await_keeper(pid_t keeper, const TakenSignals& signals) {
  while (true) {
    int status = 0;
    if (::waitpid(keeper, &status, WNOHANG) == keeper) return status;
    std::vector<pollfd> news{{signals.fd(), POLLIN, 0}};
    wait_until(news, base::Time::max());
    while (const auto taken = signals.take()) {
      if (taken->by_terminal && ::getpgid(keeper) == ::getpgrp()) continue;  // it has received the signal itself
      ::kill(keeper, taken->signal);
    }
  }
}

/// The keeper was killed, and its ranks with it; what these have started is this process's now.
void kill_adopted(const AdoptedProcesses& adopted) {
  const base::Time deadline = base::now() + kKeeperGrace;
  for (std::vector<pid_t> left = adopted.find({}); !left.empty() && base::now() < deadline; left = adopted.find({})) {
    for (const pid_t one : left) ::kill(one, SIGKILL);
    std::vector<pollfd> nothing;
    wait_until(nothing, base::now() + kAdoptedLook);
  }
}

void rethrow_of_keeper(const Pipe& failure) {
  std::string text;
  std::array<char, 4096> piece{};
  ssize_t got = 0;
  while ((got = ::read(failure.read.get(), piece.data(), piece.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(piece.data(), static_cast<std::size_t>(got));
  }
  if (text.empty()) return;
  throw Error(base::split_status(text));
}

}  // namespace

int run_supervised(const std::function<int(int lifeline)>& body) {
  Pipe lifeline = Pipe::make();
  Pipe failure = Pipe::make();
  flush_streams();  // or the keeper would write the buffered text again
  TakenSignals signals(/*children=*/true);
  const AdoptedProcesses adopted;
  const pid_t keeper = ::fork();
  if (keeper < 0) {
    const int error = errno;
    throw Error(ErrorCode::transport,
                "forking the process that keeps the ranks: " + base::errno_text(error) + base::start_remedy(error));
  }
  if (keeper == 0) {
    lifeline.write.reset();
    failure.read.reset();
    signals.restore();
    be_keeper(body, lifeline, failure);
  }
  failure.write.reset();
  const int status = await_keeper(keeper, signals);
  if (WIFSIGNALED(status)) kill_adopted(adopted);
  rethrow_of_keeper(failure);
  return status;
}

}  // namespace kolo::launch
